-- The columns of a table that an INSERT may give, as a list and as fields: of a record r, or where the letter w.original does
-- not know the column its default. Not the dedupe_key of outbox.events: since an event died another with that key may wait, and
-- this one is not to be in its way.
-- A generated column cannot be given either. One may have the name that another had before: so :moved may name it, and what it
-- computes is compared with what the letter has.
-- $1 table oid, $2 text[] names that the table has no more, $3 text[] where their values go, each a name or null for nowhere; $2 may
-- be empty: nothing goes there. $4 the queue's payload column, quoted, or null, $5 all columns that the queue maps, quoted, with dots between, the id first,
-- $6 the key's column, quoted, or null
-- -> columns text, fields text; known, moved, moved_to text: all names, $2 and $3, as literals; text: one of $2 that the table
-- has, one of $3 that it cannot be given, one that is in them twice; each null when there is none; generated text: names of generated columns,
-- a literal; computed text: their values in a row e, an array; compared text: name, value in the row p, value in the letter r of
-- each, as VALUES; computes text: whether there is one; payload, mapped text: $4 and $5, literals; put_id text: the id of a row e
-- that went in, or a null for one without the right to read it; key_column text: $6, unless it is generated, a literal
with c as (
    select a.attname::text as name, a.attnum as number, pg_catalog.format('"%s"', pg_catalog.replace(a.attname, '"', '""')) as quoted,
           a.attgenerated <> '' as generated, a.attgenerated = '' and (a.attname <> 'dedupe_key' or a.attrelid is distinct from pg_catalog.to_regclass('outbox.events')::oid) as given,
           case when a.attidentity <> ''
                then pg_catalog.format('pg_catalog.nextval(%L::regclass)', pg_catalog.pg_get_serial_sequence(a.attrelid::regclass::text, a.attname))
                when d.adbin is not null then pg_catalog.pg_get_expr(d.adbin, d.adrelid)
                else pg_catalog.pg_get_expr(t.typdefaultbin, 0) end as fallback,
           pg_catalog.format_type(a.atttypid, a.atttypmod) as type
      from pg_attribute a
      join pg_type t on t.oid = a.atttypid
      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped
), g as (
    select c.name, c.quoted, pg_catalog.row_number() over (order by c.number) as number from c where c.generated
)
select pg_catalog.string_agg(c.quoted, ', ' order by c.number) filter (where c.given),
       pg_catalog.string_agg(case when c.fallback is null then 'r.' || c.quoted
                             else pg_catalog.format('case when (w.original -> %L) is null then (%s)::%s else r.%s end', c.name, c.fallback, c.type, c.quoted)
                             end, ', ' order by c.number) filter (where c.given),
       pg_catalog.quote_literal(pg_catalog.array_agg(c.name)) || '::text[]',
       pg_catalog.quote_literal($2::text[]) || '::text[]',
       pg_catalog.quote_literal($3::text[]) || '::text[]',
       (select m.name from pg_catalog.unnest($2::text[]) m(name) where m.name in (select k.name from c k where not k.generated) limit 1),
       (select m.name from pg_catalog.unnest($3::text[]) m(name) where m.name not in (select k.name from c k where k.given) limit 1),
       (select m.name from pg_catalog.unnest($2::text[] || $3::text[]) m(name) where m.name <> '' group by m.name having pg_catalog.count(m.name) > 1 limit 1),
       (select pg_catalog.quote_literal(coalesce(pg_catalog.array_agg(g.name), '{}')) || '::text[]' from g),
       (select coalesce('array[' || pg_catalog.string_agg(pg_catalog.format('e.%s::text', g.quoted), ', ' order by g.number) || ']', 'null::text[]') from g),
       (select coalesce(pg_catalog.string_agg(pg_catalog.format('(%L, p.computed[%s], r.%s::text)', g.name, g.number, g.quoted), ', '),
                        '(null::text, null::text, null::text)') from g),
       exists (select from g)::text,
       pg_catalog.quote_nullable((pg_catalog.parse_ident($4::text))[1]) || '::text',
       pg_catalog.quote_literal(pg_catalog.parse_ident($5::text)) || '::text[]',
       (select case when pg_catalog.has_column_privilege($1::oid, k.name, 'SELECT') then pg_catalog.format('e.%s::bigint', k.quoted) else 'null::bigint' end
          from c k where k.name = (pg_catalog.parse_ident($5::text))[1]),
       (select pg_catalog.quote_nullable(pg_catalog.max(k.name)) || '::text' from c k where k.name = (pg_catalog.parse_ident($6::text))[1] and k.given)
  from c;
