-- How far the ids have been drawn. Read before horizon_holders.sql, in a statement of its own.
--
-- :sequence :sequence_name   the sequence that feeds the order column, quoted, and the same as a literal
-- One row: first bigint (its lower end), drawn bigint
select (select s.seqmin from pg_catalog.pg_sequence s where s.seqrelid = :sequence_name::regclass) as first,
       q.last_value - case when q.is_called then 0 else 1 end as drawn
from :sequence q
