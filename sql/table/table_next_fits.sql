-- What goes on to the next queue, planned and not run: fails where its columns take no such values.
-- :table :handed :next_table :next_columns :next_values :responses   as in settle_next.sql
-- $1 bigint[], $2 tid[], $3 bytea[]   null, the last only with :responses; named here, as each has to have a type
explain insert into :next_table (:next_columns)
select :next_values from (select null::bigint as id:handed from :table e where e.ctid = any ($2::tid[]) and $1::bigint[] is not null) as g:responses;
