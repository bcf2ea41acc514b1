-- What goes on to the next queue, planned and not run: fails where its columns take no such values.
-- :table :handed :next_table :next_columns :next_values :responses   as in settle_next.sql
-- $1 bigint[], $2 bytea[]   with :responses: null
explain insert into :next_table (:next_columns)
select :next_values from (select null::bigint as id:handed from :table e) as g:responses;
