-- The floor's statements skip what others have taken, which is a failure above read committed.
select pg_catalog.set_config('default_transaction_isolation', 'read committed', false)
