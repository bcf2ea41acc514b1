-- The columns of a table that an INSERT may give, as a list and as fields: of a record r, or where the letter w.original does
-- not know the column its default. Not the dedupe_key of outbox.events: since an event died another with that key may wait, and
-- this one is not to be in its way.
-- A name of $2 that the table has is right in three cases: a generated column has it now, a letter is older than the column that
-- has it (the letter lacks the column of $3), or $3 has the same name, which leaves the values where they are.
-- Letters that lack a column of :missing cannot have their value in the column of :instead beside it: that column is newer, or the
-- missing one is the payload.
-- $1 table oid, $2 text[] names that the table has no more, $3 text[] where their values go, each a name or null for nowhere,
-- $4 queue text; quoted, or null where the queue maps none: $5 id, $6 key, $7 type, $8 payload, $9 headers
-- -> columns text, fields text; known, moved, moved_to, instead, missing text: all names, $2, $3 and the two lists, as literals;
-- computed text: the generated columns, each (name, text of the letter, text of the row), as the rows of VALUES; type text: the type
-- column as a literal, or null; text: one of $2 that the table has, one of $3 that it cannot be given, one that is in
-- them twice; each null when there is none
with move as (
    select m.name, m.new_name from rows from (pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::text[])) m(name, new_name)
), mapped as (
    select (pg_catalog.parse_ident(m.quoted))[1] as name, m.use
      from (values ($5::text, 'id'), ($6::text, 'key'), ($7::text, 'type'), ($8::text, 'payload'), ($9::text, 'headers')) m(quoted, use)
     where m.quoted is not null
), c as (
    select a.attname::text as name, a.attnum as number, pg_catalog.format('"%s"', pg_catalog.replace(a.attname, '"', '""')) as quoted,
           a.attgenerated <> '' as generated,
           a.attgenerated = '' and (a.attname <> 'dedupe_key' or a.attrelid is distinct from pg_catalog.to_regclass('outbox.events')::oid) as given,
           case when a.attidentity <> ''
                then pg_catalog.format('pg_catalog.nextval(%L::regclass)', pg_catalog.pg_get_serial_sequence(a.attrelid::regclass::text, a.attname))
                when d.adbin is not null then pg_catalog.pg_get_expr(d.adbin, d.adrelid)
                else pg_catalog.pg_get_expr(t.typdefaultbin, 0) end as fallback,
           pg_catalog.format_type(a.atttypid, a.atttypmod) as type
      from pg_attribute a
      join pg_type t on t.oid = a.atttypid
      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped
), pair as (
    select k.name as instead, m.name as missing, k.number
      from mapped u
      join c m on m.name = u.name and m.given
      join c k on k.name not in (select o.name from mapped o) and (u.use = 'payload' or k.number > m.number)
     where u.use in ('type', 'payload', 'headers')
)
select pg_catalog.string_agg(c.quoted, ', ' order by c.number) filter (where c.given),
       pg_catalog.string_agg(case when c.fallback is null then 'r.' || c.quoted
                             else pg_catalog.format('case when (w.original -> %L) is null then (%s)::%s else r.%s end', c.name, c.fallback, c.type, c.quoted)
                             end, ', ' order by c.number) filter (where c.given),
       pg_catalog.quote_literal(pg_catalog.array_agg(c.name)) || '::text[]',
       pg_catalog.quote_literal($2::text[]) || '::text[]',
       pg_catalog.quote_literal($3::text[]) || '::text[]',
       (select pg_catalog.quote_literal(coalesce(pg_catalog.array_agg(p.instead order by p.number, p.missing), '{}')) || '::text[]' from pair p),
       (select pg_catalog.quote_literal(coalesce(pg_catalog.array_agg(p.missing order by p.number, p.missing), '{}')) || '::text[]' from pair p),
       coalesce(pg_catalog.string_agg(pg_catalog.format('(%L, r.%s::text, e.%2$s::text)', c.name, c.quoted), ', ' order by c.number)
                filter (where c.generated), '(null::text, null::text, null::text)'),
       pg_catalog.format('%L::text', (select m.name from mapped m where m.use = 'type')),
       (select m.name from move m join c k on k.name = m.name
         where not k.generated and m.new_name is distinct from m.name
           and not exists (select from outbox.dead d
                            where d.queue = $4::text and (d.original ->> m.name) is not null
                              and m.new_name is not null and (d.original -> m.new_name) is null) limit 1),
       (select m.new_name from move m where m.new_name <> m.name and m.new_name not in (select k.name from c k where k.given) limit 1),
       (select m.name from (select v.name from move v union all select v.new_name from move v where v.new_name <> v.name) m
         group by m.name having pg_catalog.count(m.name) > 1 limit 1)
  from c;
