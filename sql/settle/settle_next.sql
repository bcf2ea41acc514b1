-- Takes delivered events out of the table and puts them into the next queue's: the rows that this very statement takes out,
-- so each goes on exactly once, whoever else settles it at the same moment and whatever a trigger keeps. In the order of
-- their ids, which is the order in which they get their new ones.
--
-- Fails when a row is not put in, as when a trigger there returns NULL: the event would be lost. SQL has no RAISE; a text
-- that is no number says it as well.
--
-- :deleted                         the rows, with what goes on: deleted_by_place.sql or deleted_by_id.sql
-- :next_table :next_columns     the next queue's table, and its columns for that
-- :next_table_name              its name as a literal, to be read
-- :next_values                  the same names, as columns of g, or the answer r.response
-- :responses                    a join of g with the answers r; empty when those do not go on
-- $1 bigint[]   ids
-- $2 tid[]      their places, or none
-- $3 bytea[]    with :responses: what was answered to each
-- One row, as in settle_delete.sql.
:deleted, handed_on as (
    insert into :next_table (:next_columns)
    select :next_values from deleted g:responses order by g.id
    returning 1
)
select case when g.n = h.n then g.n
            else pg_catalog.concat(g.n - h.n, ' of ', g.n, ' rows did not go into ', :next_table_name, ': a trigger keeps them out')::bigint
       end as deleted,
       g.missing
from tally g, (select pg_catalog.count(*) as n from handed_on) h
