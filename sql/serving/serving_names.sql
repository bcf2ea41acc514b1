-- The queues as which relays have served a table by a class of locks.
-- $1 the table's oid text, $2 class text
-- -> text or null
select pg_catalog.string_agg(pg_catalog.quote_ident(s.queue), ', ' order by s.queue)
  from outbox.served s
 where s.tbl::oid = ($1::text)::oid and s.lock_class = ($2::text)::integer
