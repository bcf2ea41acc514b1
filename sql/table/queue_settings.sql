-- What outbox.queue says of a queue's table, of which there may be none any more.
-- $1 name text
-- -> table text (as a configuration names it, null: it is gone), id text, key text (null: it has none), lock_class int
select n.nspname || '.' || c.relname, q.id_column, q.key_column, q.lock_class
  from outbox.queue q
  left join pg_class c on c.oid = q.tbl
  left join pg_namespace n on n.oid = c.relnamespace
 where q.name = $1;
