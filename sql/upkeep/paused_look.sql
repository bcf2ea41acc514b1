-- Is the queue paused, or one of its keys? Only keys that were paused lately: a claim passes over a paused key by itself,
-- but what was claimed before has to be given back.
--
-- $1 text   queue
-- One row for the queue, if it is paused, and one for each key: key text (null: the queue), by text, reason text
select p.key, p.by, p.reason from outbox.paused p where p.queue = $1::text and p.key is null
union all
select p.key, p.by, p.reason from outbox.paused p
where p.queue = $1::text and p.key is not null and p.since > pg_catalog.statement_timestamp() - interval '1 minute';
