-- What goes on to the next queue, planned and not run: fails where its columns take no such values.
-- :table :handed :next_table :next_columns :next_values   as in settle_next.sql
explain insert into :next_table (:next_columns)
select :next_values from (select null::bigint as id:handed from :table e) as g;
