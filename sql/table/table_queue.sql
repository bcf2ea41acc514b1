-- What workers that pull are told about the same rows (outbox.queue) and a relay would not agree with: they would not
-- keep out of each other's way.
-- $1 queue text, $2 table oid, $3 attnum of id int, $4 attnum of key int (-1: no key), $5 condition text or null, $6 lock class int,
-- $7 attnum of not_before int (-1: none), $8 delayed text, $9 the relay locks rows, which no lease keeps it from: boolean,
-- $10 then text or null, $11 then_payload text, $12 attnum of after int (-1: none),
-- $13 attnum of priority int (-1: none), $14 after: 'archive' or 'delete', $15 attempts int, $16 on_exhausted text
-- -> text, remedy text, level text: error or warning
with recursive member (oid) as (
    -- Its partitions and children have its rows, too, and so have those whose partition or child it is.
    select $2::oid
    union
    select h.inhrelid from member m join pg_inherits h on h.inhparent = m.oid
), above (oid) as (
    select $2::oid
    union
    select h.inhparent from above a join pg_inherits h on h.inhrelid = a.oid
), known as (
    select q.name, q.tbl, q.condition, q.lock_class, q.after as ends, q.max_attempts, q.on_exhausted, n.*,
           q.tbl in (select oid from member union all select oid from above) as shared,
           q.delayed, q.then_queue, q.then_payload,
           q.condition is not distinct from nullif(pg_catalog.btrim($5::text), '') as same,
           q.name = $1::text and not $9::boolean as ours
      from outbox.queue q
     cross join lateral (
        -- The numbers of its columns; 0: there is no such column, -1: none is mapped.
        select coalesce(max(a.attnum) filter (where a.attname = q.id_column), 0) as id,
               coalesce(max(a.attnum) filter (where a.attname = q.key_column), (q.key_column is null)::int * -1) as key,
               coalesce(max(a.attnum) filter (where a.attname = q.not_before_column), (q.not_before_column is null)::int * -1) as not_before,
               coalesce(max(a.attnum) filter (where a.attname = q.after_column), (q.after_column is null)::int * -1) as after,
               coalesce(max(a.attnum) filter (where a.attname = q.priority_column), (q.priority_column is null)::int * -1) as priority
          from pg_attribute a where a.attrelid = q.tbl) n
)
select x.text, x.remedy, x.level
  from known k
 cross join lateral (values
    (not $9::boolean and k.name <> $1::text and k.shared and (k.condition is null or $5::text is null or k.same or k.lock_class <> $6::int),
     pg_catalog.format('workers take events of this table as queue %I, and relays as queue %I: they would deliver the same events; use one'
                       ' name, or give each a condition that leaves the other''s rows alone', k.name, $1::text),
     pg_catalog.format('select outbox.queue_drop(%L);', k.name), 'error'),
    (k.ours and not (k.tbl = $2::oid and k.id = $3::int and k.key = $4::int and k.lock_class = $6::int and k.same
                     and k.not_before = $7::int and (k.not_before = -1 or k.delayed = $8::text)),
     pg_catalog.format('workers take events of queue %I with another %s (outbox.queue): they and relays would deliver the same key at once',
                       k.name, case when k.tbl <> $2::oid then 'table' when k.id <> $3::int then 'id' when k.key <> $4::int then 'key'
                                    when k.lock_class <> $6::int then 'lock_class' when k.not_before <> $7::int then 'not_before'
                                    when not k.same then 'condition' else 'delayed' end),
     pg_catalog.format('select outbox.queue_drop(%L);', k.name), 'error'),
    (k.ours and k.tbl = $2::oid and k.after <> $12::int,
     pg_catalog.format('workers take events of queue %I with another after (outbox.queue): they and relays would not wait for the same events', k.name),
     pg_catalog.format('select outbox.queue_set(%L, ..., after_column => %L);', k.name,
                       (select a.attname from pg_attribute a where a.attrelid = $2::oid and a.attnum = $12::int and a.attnum > 0)), 'error'),
    (k.ours and k.tbl = $2::oid and k.priority <> $13::int,
     pg_catalog.format('workers take events of queue %I with another priority (outbox.queue): what is urgent to them would not be to relays', k.name),
     pg_catalog.format('select outbox.queue_set(%L, ..., priority_column => %L);', k.name,
                       (select a.attname from pg_attribute a where a.attrelid = $2::oid and a.attnum = $13::int and a.attnum > 0)), 'error'),
    (k.ours and (k.then_queue is distinct from $10::text or k.then_payload <> $11::text),
     pg_catalog.format('workers end events of queue %I with another %s (outbox.queue) than relays: what they end would go on to %s', k.name,
                       case when k.then_queue is not distinct from $10::text then 'then_payload' else 'then' end,
                       coalesce('queue ' || pg_catalog.quote_ident(k.then_queue), 'no queue')),
     pg_catalog.format('select outbox.queue_set(%L, ..., then_queue => %L, then_payload => %L);', k.name, $10::text, $11::text), 'error'),
    ($9::boolean and (k.name = $1::text or k.shared and (k.condition is null or $5::text is null or k.same)),
     pg_catalog.format('workers take events of this table as queue %I, and relays lock its rows (locks: rows), which leases do not heed: they would'
                       ' deliver the same events; write locks: advisory, or forget the workers'' queue', k.name),
     pg_catalog.format('select outbox.queue_drop(%L);', k.name), 'error'),
    (k.ours and k.ends <> $14::text,
     pg_catalog.format('workers end events of queue %I with after: %s (outbox.queue), and relays with after: %s: %s', k.name, k.ends, $14::text,
                       case k.ends when 'delete' then 'what workers do would be in no archive' else 'what relays deliver would be in no archive' end),
     pg_catalog.format('select outbox.queue_set(%L, ..., after => %L);', k.name, $14::text), 'error'),
    (k.ours and (k.max_attempts <> $15::bigint or k.on_exhausted <> $16::text),
     pg_catalog.format('workers give up events of queue %I otherwise than relays: after %s attempts (%s; outbox.queue), and relays after %s (%s)', k.name,
                       k.max_attempts, k.on_exhausted, $15::bigint, $16::text),
     pg_catalog.format('select outbox.queue_set(%L, ..., max_attempts => %s, on_exhausted => %L);', k.name, $15::bigint, $16::text), 'warning'))
    x (found, text, remedy, level)
 where x.found;
