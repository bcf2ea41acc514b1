-- How far the ids have been drawn. Read before horizon_holders.sql, in a statement of its own.
--
-- :sequence :sequence_class   the sequence that feeds the order column, quoted, and the same as a regclass
-- One row: first bigint (its lower end), drawn bigint, source text
--
-- What is known of ids holds while `source` stays the same. TRUNCATE ... RESTART IDENTITY gives the sequence another file.
-- Another server has started at another time, and one that has crashed and recovered may have lost the last values: from
-- PostgreSQL 15 on it begins its statistics anew then. (Before, they would have to be read from a file.)
select (select s.seqmin from pg_catalog.pg_sequence s where s.seqrelid = :sequence_class) as first,
       q.last_value - case when q.is_called then 0 else 1 end as drawn,
       pg_catalog.concat_ws(' ', pg_catalog.pg_relation_filenode(:sequence_class),
                            extract(epoch from pg_catalog.pg_postmaster_start_time()),
                            case when pg_catalog.current_setting('server_version_num')::integer >= 150000
                                then extract(epoch from pg_catalog.pg_stat_get_bgwriter_stat_reset_time()) end) as source
from :sequence q
