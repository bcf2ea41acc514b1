-- How many events wait: counted up to a limit, then guessed.
-- :table, :where; $1 limit bigint, $2 table text (quoted)
-- -> counted bigint (at most the limit), guess bigint: live rows by the last analyze, scaled to today's size
select (select pg_catalog.count(*) from (select from :table e where (:where) limit $1) counted),
       (select coalesce(pg_catalog.sum(c.reltuples / c.relpages * (pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::int)), 0)
          from pg_class c
         where (c.oid = pg_catalog.to_regclass($2) or c.oid in (select p.relid from pg_catalog.pg_partition_tree(pg_catalog.to_regclass($2)) p))
           and c.relpages > 0
           and c.reltuples >= 0)::bigint;
