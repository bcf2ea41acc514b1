-- A command's own session: it may wait for somebody's answer, or for deliveries, for as long as they take, and what it does
-- in one transaction is not to be ended in the middle. How long one statement may take the role says.
select pg_catalog.set_config('idle_session_timeout', '0', false),
       case when pg_catalog.current_setting('transaction_timeout', true) is not null
            then pg_catalog.set_config('transaction_timeout', '0', false) end
