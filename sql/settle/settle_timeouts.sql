-- How long this settlement waits for a lock: for a short time while somebody is known to hold one (relay/settle/blocked.h), and where
-- a pooler shares the session and it has no settings of ours. On the side connection it may wait behind somebody who waits for
-- a claim that waits for it, and nobody else would end that.
--
-- How long its statements last is set along with it: only then is it known of one that was cancelled whether its time was up.
--
-- Who waits for a lock until the transaction_timeout of the role (PostgreSQL 17 and later) ends the session learns of no row
-- that somebody holds, and settles none of its neighbours: so there is none.
--
-- $1 text     lock_timeout
-- $2 bigint   statement_timeout, milliseconds
-- One row: lock_timeout text, statement_timeout text, transaction_timeout text
select pg_catalog.set_config('lock_timeout', $1::text, true) as lock_timeout,
       pg_catalog.set_config('statement_timeout', $2::bigint::text, true) as statement_timeout,
       case when pg_catalog.current_setting('transaction_timeout', true) is not null
            then pg_catalog.set_config('transaction_timeout', '0', true) end as transaction_timeout
