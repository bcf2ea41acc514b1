-- The article's choice of a key, newest first, in a statement of its own: what is read must have a younger snapshot
-- than the lock.
select order_id from public.events where pg_try_advisory_xact_lock(order_id) order by id desc limit 1
