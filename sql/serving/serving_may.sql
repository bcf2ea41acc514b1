-- May we say, and ask, by which locks tables are served behind poolers?
-- -> boolean
select coalesce(pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('outbox.note_serving(text,oid,integer,text,boolean)'), 'execute'), false)
