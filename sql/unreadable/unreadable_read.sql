-- Whether these rows can be read as a claim reads them: it fails when one cannot, be it on the way to the relay.
--
-- :table :where :id              as in lock_ids.sql
-- :columns :text_once            as in per_key_read.sql
-- $1 bigint[]   ids
-- -> the rows that are the queue's
select o.*
from pg_catalog.unnest($1::bigint[]) as i (id)
cross join lateral (
    select :columns from :table e:text_once
    where :id between i.id and i.id and case when :id between i.id and i.id then (:where) else false end
    order by :id offset 0) as o
