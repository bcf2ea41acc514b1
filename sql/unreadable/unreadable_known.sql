-- Whether keys wait already for one of these rows to become readable.
--
-- :state        as in lock_ids.sql
-- $1 text       queue
-- $2 bigint[]   ids
-- $3 text       how the reason of such a wait begins
-- No row when none does, else one.
select 1 as known from :state.parked p
where p.queue = $1::text and p.event_id = any ($2::bigint[]) and pg_catalog.starts_with(p.last_error, $3::text)
limit 1
