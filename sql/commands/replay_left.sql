-- How far a replay is.
-- :table, :key, :id   the replay's table (as e) and its columns
-- :wanted             false for an event that is to be sent no more: see relay/commands/replay.c
-- $1 text   the name of the replay's entries in parked
-- $2 text   the queue
-- -> unsent bigint, of those that are to be sent; movable bigint: those of them whose key is neither closed nor paused; closed bigint: keys; error text: of one of
--    these, or null; paused boolean: the queue is; withdrawn bigint: events that are to be sent no more
select pg_catalog.count(*) filter (where :wanted) as unsent,
       pg_catalog.count(*) filter (where (:wanted) and case when (:key)::text is null then not exists (
               select from outbox.parked p
                where p.queue = $1::text and p.keyless and p.next_at = 'infinity' and p.event_id between :id and :id
                order by p.event_id offset 0)
           else not exists (
               select from outbox.parked p
                where (p.queue = $1::text or p.queue = $2::text and p.resume_at is not null) and not p.keyless
                  and p.next_at = 'infinity' and p.key = ((:key)::text collate "default")
                order by p.key offset 0) end) as movable,
       (select pg_catalog.count(*) from outbox.parked p where p.queue = $1::text and p.next_at = 'infinity') as closed,
       (select pg_catalog.min(p.last_error) from outbox.parked p where p.queue = $1::text and p.next_at = 'infinity') as error,
       exists (select from outbox.paused p where p.queue = $2::text and p.key is null) as paused,
       pg_catalog.count(*) filter (where not (:wanted)) as withdrawn
  from :table e;
