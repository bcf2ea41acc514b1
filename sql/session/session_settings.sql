-- Settings of a session that is ours alone, whatever the role's defaults. The keepalives are the server's side: the locks
-- of a relay whose machine has died end within a minute, not after the kernel's two hours. A queue's table is small when a
-- plan is made and large when it is used again, or the other way round: a sequential scan is never the one to keep.
--
-- A prepared statement keeps its plan. A relay mostly starts on a queue that is empty, where a sequential scan costs
-- nothing, and would stay with it until the next autovacuum: 256 keys were seen to read a table of 200,000 dead rows
-- 256 times. So none is planned where an index can serve. And the planner is not to look at the values of each claim
-- anew: that took a seventh of a claim's time and chose the same plan. What is wanted in an order comes from an index
-- that has it: next to a table that the planner believes to be empty, reading a whole index and sorting looks cheaper.
--
-- Several statements of a round have a snapshot each, and some have to see what others have committed since the one before:
-- see horizon_movers.sql.
--
-- Sessions wait for work for as long as there is none, and with `locks: rows` a transaction lasts as long as its deliveries:
-- idle_session_timeout and transaction_timeout (PostgreSQL 17 and later) are for others. Who ended a transaction that holds keys
-- would have their events delivered twice. What stands still for long is ended all the same.
--
-- What goes into the archive is kept until the statement ends: with the usual work_mem of 4MB in a temporary file from
-- some 4,000 events of 300 bytes on.
--
-- The path is as in session_path.sql. Until it is set any other may be in force, so every name here is qualified.
--
-- $1 text   client_encoding
-- $2 text   statement_timeout, milliseconds
-- $3 text   lock_timeout, milliseconds
select pg_catalog.set_config('client_encoding', $1, false),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false),
       pg_catalog.set_config('statement_timeout', $2, false),
       pg_catalog.set_config('lock_timeout', $3, false),
       pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
       pg_catalog.set_config('idle_in_transaction_session_timeout', '10min', false),
       pg_catalog.set_config('idle_session_timeout', '0', false),
       case when pg_catalog.current_setting('transaction_timeout', true) is not null
            then pg_catalog.set_config('transaction_timeout', '0', false) end,
       pg_catalog.set_config('tcp_keepalives_idle', '30', false),
       pg_catalog.set_config('tcp_keepalives_interval', '10', false),
       pg_catalog.set_config('tcp_keepalives_count', '3', false),
       pg_catalog.set_config('tcp_user_timeout', '30000', false),
       pg_catalog.set_config('work_mem', greatest(32768, pg_catalog.pg_size_bytes(pg_catalog.current_setting('work_mem'))
                                                         operator(pg_catalog./) 1024)::pg_catalog.text, false), -- kB
       pg_catalog.set_config('jit', 'off', false),
       pg_catalog.set_config('enable_seqscan', 'off', false),
       pg_catalog.set_config('enable_sort', 'off', false),
       pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false)
