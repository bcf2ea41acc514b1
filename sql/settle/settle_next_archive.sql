-- Moves delivered events from the table to the archive, and puts them into the next queue's table: settle_archive.sql and
-- settle_next.sql in one.
--
-- :deleted :state    as in settle_archive.sql, with what goes on
-- :next_table :next_table_name :next_columns :next_values :responses    as in settle_next.sql
-- :queue_name  the queue's name as a literal
-- $1 bigint[]  ids
-- $2 tid[]     their places, or none
-- $3 bytea[]   with :responses: what was answered to each
-- One row, as in settle_delete.sql.
:deleted, handed_on as (
    insert into :next_table (:next_columns)
    select :next_values from deleted g:responses order by g.id
    returning 1
), archived as (
    insert into :state.archive (queue, event_id, key, created_at, original)
    select (:queue_name)::text, g.id, g.archive_key, g.created_at, g.original from deleted g
)
select case when g.n = h.n then g.n
            else pg_catalog.concat(g.n - h.n, ' of ', g.n, ' rows did not go into ', :next_table_name, ': a trigger keeps them out')::bigint
       end as deleted,
       g.missing
from tally g, (select pg_catalog.count(*) as n from handed_on) h
