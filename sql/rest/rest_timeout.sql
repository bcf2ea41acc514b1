-- How long the next statement of this transaction may take: settlements and renewals of leases wait for it.
--
-- $1 text   statement_timeout
select pg_catalog.set_config('statement_timeout', $1::text, true)
