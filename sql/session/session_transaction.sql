-- A transaction that lasts as long as deliveries do, in a session that a pooler shares: what others use the session for keeps
-- the settings of the role. A transaction_timeout (PostgreSQL 17 and later) that is running already ends here.
select pg_catalog.set_config('idle_in_transaction_session_timeout', '10min', true),
       case when pg_catalog.current_setting('transaction_timeout', true) is not null
            then pg_catalog.set_config('transaction_timeout', '0', true) end
