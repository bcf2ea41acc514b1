-- Which rows the statements that come next in this transaction do not try to read (relay/side/unreadable.h): where there are such,
-- :where and :columns are made to ask for it.
--
-- $1 bigint[]   their ids
select pg_catalog.set_config('courier.unreadable', $1::bigint[]::text, true)
