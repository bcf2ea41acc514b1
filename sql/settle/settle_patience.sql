-- How long a settlement on the side connection waits for a lock, where a pooler shares the session and it has no settings
-- of ours. It may wait behind somebody who waits for a claim that waits for it, and nobody else would end that.
-- One row: lock_timeout text
select pg_catalog.set_config('lock_timeout', '5s', true) as lock_timeout
