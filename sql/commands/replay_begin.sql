-- A replay that is to go on, its closed keys open again.
-- $1 replay_id bigint
-- -> queue text, sink text or null, destination text or null, rate int or null, events bigint, takes boolean: what
-- is sent leaves the dead letters
select r.queue, r.sink, r.destination, coalesce(r.rate, 0), r.events,
       r.source = 'dead' and r.sink is null and r.destination is null
  from outbox.replay_begin($1::bigint) r;
