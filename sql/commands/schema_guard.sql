-- Why the schema outbox must not be touched, if it must not: somebody else made it, or something in it, and triggers, views and
-- functions there would run with the rights of whoever migrates, who may be a superuser. (SET ROLE to its owner would not help, as
-- such code can RESET it.) Who has the rights of the current user anyway may own what is in it. Reads the catalogue alone.
-- -> refusal text; no row: there is no such schema, or it is as it should be
with schema (oid, owner) as (
    select n.oid, pg_catalog.pg_get_userbyid(n.nspowner) from pg_catalog.pg_namespace n where n.nspname = 'outbox'
), thing (class, oid, owner) as (
    select 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid, c.oid, c.relowner
      from schema s join pg_catalog.pg_class c on c.relnamespace = s.oid
    union all
    select 'pg_catalog.pg_proc'::pg_catalog.regclass, p.oid, p.proowner from schema s join pg_catalog.pg_proc p on p.pronamespace = s.oid
    union all
    select 'pg_catalog.pg_type'::pg_catalog.regclass, t.oid, t.typowner
      from schema s join pg_catalog.pg_type t on t.typnamespace = s.oid
     where t.typelem = 0 -- an array goes with its elements' type
)
(select pg_catalog.format('the schema outbox belongs to %I, and what is in it would run with the rights of %I; migrate as %1$I, or drop it if it is not pgcourier''s',
                          s.owner, current_user) as refusal
   from schema s where s.owner <> current_user)
union all
(select pg_catalog.format('%s belongs to %I, and would run with the rights of %I; drop it, or move it out of the schema outbox',
                          pg_catalog.pg_describe_object(t.class, t.oid, 0), pg_catalog.pg_get_userbyid(t.owner), current_user)
   from thing t where not pg_catalog.pg_has_role(t.owner, current_user, 'usage')
  order by t.class desc, t.oid limit 1)
union all
(select 'outbox.schema_version is not as pgcourier made it, but a view, or has a trigger, a rule or row security; take that away'
   from schema s join pg_catalog.pg_class c on c.relnamespace = s.oid
  where c.relname = 'schema_version'
    and (c.relkind <> 'r' or c.relhasrules or c.relrowsecurity
         or exists (select from pg_catalog.pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal)))
union all
(select pg_catalog.format('%1$s may create in the schema outbox, and what is put there may run with the rights of %2$I; revoke create on schema outbox from %1$s;',
                          case when a.grantee = 0 then 'public' else pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) end, current_user)
   from schema s
   join pg_catalog.pg_namespace n on n.oid = s.oid
  cross join lateral pg_catalog.aclexplode(n.nspacl) a
  where a.privilege_type = 'CREATE' and case when a.grantee = 0 then true else not pg_catalog.pg_has_role(a.grantee, current_user, 'usage') end
  order by a.grantee limit 1)
 limit 1;
