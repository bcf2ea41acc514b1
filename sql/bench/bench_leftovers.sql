-- The schemas of benches, under way or left behind: by their name and the comment that bench_create.sql gives them.
-- -> name text (needs no quotes), owner text, droppable boolean: by us
select n.nspname::text, pg_catalog.pg_get_userbyid(n.nspowner)::text, pg_catalog.pg_has_role(n.nspowner, 'USAGE')
  from pg_namespace n
 where n.nspname::text ~ '^pgcourier_bench_[0-9]+_[0-9a-f]+$'
   and pg_catalog.obj_description(n.oid, 'pg_namespace') = 'pgcourier bench'
 order by 1
