-- What may keep a row of a table from being deleted, which is how a delivered event leaves it.
-- $1 table oid
-- -> breaks boolean: it keeps every row; what text, why text, remedy text or null
select true,
       pg_catalog.format('rule %I on %I.%I', r.rulename, n.nspname, c.relname),
       'stands in the way of DELETE: delivered rows would stay, and be delivered again for ever',
       pg_catalog.format('drop rule %I on %I.%I;', r.rulename, n.nspname, c.relname)
  from pg_rewrite r
  join pg_class c on c.oid = r.ev_class
  join pg_namespace n on n.oid = c.relnamespace
 where r.ev_class = $1::oid
   and r.ev_type = '4'
   and r.ev_enabled <> 'D'
union all
select false,
       pg_catalog.format('trigger %I on %I.%I', t.tgname, n.nspname, c.relname),
       'fires before a row is deleted: the event of a row that it keeps (by returning NULL) comes again and its key waits',
       null
  from pg_trigger t
  join pg_class c on c.oid = t.tgrelid
  join pg_namespace n on n.oid = c.relnamespace
 where t.tgrelid in (select $1::oid union select p.relid from pg_catalog.pg_partition_tree($1::oid) p)
   and t.tgparentid = 0
   and not t.tgisinternal
   and t.tgtype & 11 = 11 -- for each row (1), before (2), delete (8)
   and t.tgenabled in ('O', 'A')
union all
select false,
       pg_catalog.format('foreign key %I of %I.%I', k.conname, n.nspname, c.relname),
       'refers to it: while a delivered row is referred to it cannot be deleted; its event comes again and its key waits',
       null
  from pg_constraint k
  join pg_class c on c.oid = k.conrelid
  join pg_namespace n on n.oid = c.relnamespace
 where k.confrelid = $1::oid
   and k.contype = 'f'
   and k.confdeltype in ('a', 'r')
   and k.conparentid = 0
 order by 1 desc, 2;
