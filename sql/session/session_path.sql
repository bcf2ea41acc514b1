-- Our statements take operators and functions from pg_catalog, which is searched first unless the search_path names it
-- in a later place: then whoever may create things in the schemas before it could put theirs in the place of ours. In
-- such a session the path loses that name, and is otherwise the role's own: a queue's condition and the triggers of its
-- table mean by a name what they mean to everybody else. Everything here is qualified, because it is run before.
-- $1 boolean: only look. Where a pooler shares the session a setting would be found by others; it ends with this statement.
-- -> search_path text: what it should be; no row: it may stay as it is
select pg_catalog.set_config('search_path', (
           select pg_catalog.string_agg(pg_catalog.quote_ident(s.name), ', ' order by s.place)
             from pg_catalog.unnest(pg_catalog.current_schemas(false)) with ordinality s (name, place)
            where s.name operator(pg_catalog.<>) 'pg_catalog'), $1::pg_catalog.bool) as search_path
 where pg_catalog.array_position(pg_catalog.current_schemas(false), 'pg_catalog') operator(pg_catalog.>) 1
