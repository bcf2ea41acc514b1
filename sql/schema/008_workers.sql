-- 008_workers: workers that pull, in SQL and so in any language. docs/workers.md shows how.
--
-- DESIGN. A lease is a key that waits: the entry in outbox.parked that a failure leaves, with a token on it, and next_at for
-- the end of the term. Relays and take() leave a waiting key alone and come back when its time is over, so leases need no
-- other rule: events of a key come in order, whoever delivers them, and what a dead worker had is taken over.
--
-- take() is a claim like a relay's, in two statements: one takes the advisory locks of some keys, the next one, whose
-- snapshot is younger than the locks, reads their heads and writes the entries. The commit lets the locks go and leaves
-- the entries. A verdict counts while the entry has its token. Whoever takes the key over needs the advisory lock and a
-- term that is over by the database's clock: so while the term lasts the entry's row lock is all that a verdict needs, and
-- when it is over, the advisory lock too.
--
-- An entry is not removed while its key has more events, but moved to the next of them: relays may have passed it.

-- Where take() begins to look: hints, so that it does not walk over the dead index entries of what is done. A late id, a row
-- put back, a mark that is wrong: a slow sweep below `low` finds what is there. See lock_keys(). The newest row of a queue
-- counts, and none is updated: a take() in a long transaction is in nobody's way, nor is an old snapshot. A call that goes on
-- by settings that were replaced moves marks of its own, as they may be of other rows.
create table outbox.take_mark (
    queue      text not null references outbox.queue (name) on delete cascade,
    number     int not null,         -- outbox.queue's
    moved_at   timestamptz not null,
    low        bigint not null,      -- events below it wait, and are found in parked
    next_low   bigint not null,      -- what low will be when the next move agrees
    swept      bigint,               -- the sweep goes on after this id,
    sweep_span bigint not null,      -- by so many at a time
    waits_from timestamptz not null, -- what waits, waits for a later time
    due_to     timestamptz,          -- what became due until then has been found
    asked_to   bigint,               -- of the events that others wait for, those up to this one were looked for
    -- Where there is a priority, places in the order of it: what is before `top` waits or is somebody's, and what is not is
    -- found by another slow sweep, which goes on after `topped`.
    top_priority    bigint not null,
    top_id          bigint not null,
    topped_priority bigint not null,
    topped_id       bigint not null,
    due_at     timestamptz not null, -- when to move all this again
    primary key (queue, number, moved_at)
) with (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- Verdicts that came too late and changed nothing. A sequence counts without a lock, and what is rolled back too.
create sequence outbox.late_verdicts minvalue 0;

-- The oldest event of one key, as SQL: `columns` of e. The key and the id to start at are SQL, too. Spelled so that the
-- index on (key, id) serves it by itself, and where there is none, so that nobody walks the whole table by id.
create function outbox.head_sql(q outbox.queue, columns text, key text, id text, more text default 'true') returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $$
    select case
        when q.key_type = 'none' then format('select %s from %s e where false', columns, q.tbl)
        when q.key_index then
            format('select %1$s from %2$s e where (e.%3$I, e.%4$I) >= (%5$s::%7$s, %6$s) and (e.%3$I, e.%4$I) <= (%5$s::%7$s, 9223372036854775807)'
                   ' and (%8$s) and (%9$s) order by e.%3$I, e.%4$I limit 1',
                   columns, q.tbl, q.key_column, q.id_column, key, id, q.key_type, coalesce(q.condition, 'true'), more)
        else
            format('select %1$s from %2$s e where e.%3$I = %5$s::%7$s and e.%4$I >= %6$s and (%8$s) and (%9$s) order by e.%4$I + 0 limit 1',
                   columns, q.tbl, q.key_column, q.id_column, key, id, q.key_type, coalesce(q.condition, 'true'), more)
        end
$$;

-- A column of e as SQL, or a null.
create function outbox.column_sql(column_name name, type text) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $$
    select case when column_name is null then format('null::%s', type) else format('e.%I::%s', column_name, type) end
$$;

-- Does q serve outbox.events without an order? Then what came again waits for the event that goes first: publish_once(). (Of this
-- and the next one each call of take() asks: without a search_path of their own they cost nothing.)
create function outbox.comes_again(q outbox.queue) returns boolean
    language sql stable
as $$
    select q.tbl operator(pg_catalog.=) 'outbox.events'::pg_catalog.regclass and q.key_type operator(pg_catalog.=) 'none'
$$;

-- May its events have to wait for others to be done?
create function outbox.comes_after(q outbox.queue) returns boolean
    language sql stable
as $$
    select q.after_column is not null or outbox.comes_again(q)
$$;

-- The event that e comes again after, while it is there, whoever serves it; null where there is an order. And the first of the
-- events that e names and that are not done; null where it names none. As in relay/table/table_sql.c.
create function outbox.earlier_sql(q outbox.queue) returns text
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select format('case when e.again_after is not null then (select o.%1$I from %2$s o'
                  ' where o.%1$I between e.again_after and e.again_after order by o.%1$I offset 0) end', q.id_column, q.tbl)
     where outbox.comes_again(q)
$$;

create function outbox.undone_sql(q outbox.queue) returns text
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select format('(select a.id from (select e.%1$I as id%2$s) o cross join unnest(%3$s) a (id)'
                  ' where exists (select from %4$s e where e.%1$I between a.id and a.id and (%5$s)%6$s order by e.%1$I offset 0)'
                  ' or exists (select from outbox.dead d where d.queue = %7$L and d.event_id = a.id) order by a.id limit 1)',
                  q.id_column, case when q.key_column is not null then format(', e.%I as key', q.key_column) end,
                  case when a.atttypid in ('bigint[]'::regtype, 'integer[]'::regtype) then format('e.%I::bigint[]', q.after_column)
                       else format('array[e.%I::bigint]', q.after_column) end,
                  q.tbl, coalesce(q.condition, 'true'),
                  case when q.key_column is not null then
                      format(' and (e.%I <> o.key or e.%I >= o.id) is not false', q.key_column, q.id_column) end, q.name)
      from pg_attribute a where a.attrelid = q.tbl and a.attname = q.after_column
$$;

-- A part of queue_N_lease(): heads that are not due, or that come after others, wait as relay/settle/settle.c has them wait.
create function outbox.delayed_sql(q outbox.queue) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $function$
    select format($$delayed as (
        insert into outbox.parked as p (queue, key, event_id, keyless, next_at, after_id)
        select %1$L, h.key, h.id, false, coalesce(h.due_at, clock_timestamp() + interval '1 hour'), h.after_id
        from head h where (h.due_at is not null or h.after_id is not null) and h.key is not null order by h.key collate "C"
        on conflict (queue, key) where not keyless do update
        set event_id = excluded.event_id, attempts = 0, last_error = '', token = null, after_id = excluded.after_id,
            updated_at = excluded.updated_at,
            first_failed_at = case when p.after_id is not null and p.event_id = excluded.event_id then p.first_failed_at else excluded.first_failed_at end,
            next_at = case when p.resume_at is null then excluded.next_at else p.next_at end,
            resume_at = case when p.resume_at is not null then excluded.next_at end
    ), delayed_solo as (
        insert into outbox.parked as p (queue, key, event_id, keyless, next_at, after_id)
        select %1$L, '', h.id, true, coalesce(h.due_at, clock_timestamp() + interval '1 hour'), h.after_id
        from head h where (h.due_at is not null or h.after_id is not null) and h.key is null order by h.id
        on conflict (queue, event_id) where keyless do update
        set attempts = 0, last_error = '', next_at = excluded.next_at, token = null, after_id = excluded.after_id,
            updated_at = excluded.updated_at,
            first_failed_at = case when p.after_id is not null then p.first_failed_at else excluded.first_failed_at end
    ), $$, q.name)
$function$;

-- Makes the function that wakes who waits for events that are done by now: sql/upkeep/after_look.sql in plpgsql. It returns
-- the last event asked for, null when there are no more. So many keys are woken at a time and no more, because whoever calls
-- take() waits for it.
create function outbox.queue_build_after(q outbox.queue) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $build$
begin
    execute format($function$
create function outbox.queue_%1$s_after(asked_to bigint) returns bigint
    language plpgsql
as $$
#variable_conflict use_column
declare
    most constant int := 1000;
    ret  bigint;
begin
    with recursive named (id) as (
        (select p.after_id from outbox.parked p
          where p.queue = %2$L and p.after_id > coalesce(asked_to, -9223372036854775808) order by p.after_id limit 1)
        union all
        select (select p.after_id from outbox.parked p where p.queue = %2$L and p.after_id > n.id order by p.after_id limit 1)
        from named n where n.id is not null
    ), asked as materialized (
        select n.id from named n where n.id is not null limit most
    ), done as materialized (
        select a.id from asked a
        where not exists (select from %3$s e where e.%4$I between a.id and a.id and (%5$s) order by e.%4$I offset 0)
          and not (%6$s and exists (select from outbox.dead d where d.queue = %2$L and d.event_id = a.id))
    ), waiting as materialized (
        select w.place from done d
        cross join lateral (
            select p.ctid as place from outbox.parked p
            where p.queue = %2$L and p.after_id between d.id and d.id
              and p.attempts = 0 and p.last_error = '' and p.token is null and p.resume_at is null and p.next_at > clock_timestamp()
            order by p.after_id limit 5 * most for update skip locked) w
        limit 5 * most
    ), woken as (
        update outbox.parked p set next_at = clock_timestamp(), after_id = null, updated_at = clock_timestamp()
        from waiting w where p.ctid = w.place
    )
    select max(a.id) into ret from asked a having count(*) >= most;
    return ret;
end
$$$function$, q.number, q.name, q.tbl, q.id_column, case when q.after_column is not null then coalesce(q.condition, 'true') else 'true' end,
        (q.after_column is not null)::text);
end
$build$;

-- Is there an index that finds what becomes due? As in sql/table/table_delays.sql.
create function outbox.has_due_index(tbl regclass, not_before_column name) returns boolean
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select exists (
        select from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am m on m.oid = c.relam
         where i.indrelid = tbl and i.indisvalid and m.amname = 'btree'
           and i.indkey[0] = (select a.attnum from pg_attribute a where a.attrelid = tbl and a.attname = not_before_column)
           and (i.indpred is null or pg_get_expr(i.indpred, i.indrelid) = format('(%I IS NOT NULL)', not_before_column)))
$$;

-- What an entry p becomes when an event `id` is found that comes before the one that it points at: that is next, and has no
-- failures. A wait after a failure goes on, and so does a lease, whose verdict goes on to this event; a wait for a time, or for
-- another event, was not this one's.
create function outbox.ahead_sql(id text) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $$
    select format('event_id = %1$s, attempts = case when p.token is null then 0 else p.attempts end, updated_at = clock_timestamp(),'
                  ' after_id = case when %2$s then p.after_id end,'
                  ' next_at = case when %2$s then p.next_at else least(p.next_at, clock_timestamp()) end',
                  id, '(p.attempts > 0 or p.last_error <> '''' or p.token is not null or p.resume_at is not null)')
$$;

-- The key of an entry is not closed. One that is remains at the event that closed it: that is what `dead drop` drops.
create function outbox.open_sql(entry text) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $$
    select format('(%1$s.next_at < ''infinity'' or %1$s.resume_at < ''infinity'' or %1$s.attempts = 0 and %1$s.last_error = '''')', entry)
$$;

-- A part of queue_N_lock(): of what page and sweep have found, `ready` is what has no entry. An entry that points behind an event
-- of its key is turned back to it: the event was committed late, or its time was changed. One that somebody has locked is
-- turned back another time, and so is a lease that is over: two calls that take over what the other has turned would wait for
-- each other.
create function outbox.ready_sql(q outbox.queue, priority boolean) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $function$
    select format($$first as materialized (
        select f.key, min(f.id) as id%3$s from (select * from page union all select s.* from sweep_end cross join sweep s) f
        group by f.key, case when f.key is null then f.id end
    ), seen as materialized (
        select f.*, p.place, p.behind
        from first f
        left join lateral (
            (select w.ctid as place, false as behind from outbox.parked w
             where f.key is null and w.queue = %1$L and w.keyless and w.event_id between f.id and f.id order by w.event_id offset 0)
            union all
            (select w.ctid, w.event_id > f.id and %2$s and (w.token is null or w.next_at > until) from outbox.parked w
             where f.key is not null and w.queue = %1$L and not w.keyless
             and w.key between (f.key collate "default") and (f.key collate "default") order by w.key offset 0)) p on true
    ), ready as materialized (
        select f.* from seen f
        where f.place is null and case when f.key is null then f.id <> all ($10) else f.key <> all ($9) end
    ), turned as (
        update outbox.parked p set %4$s
        from (select o.place, f.id from seen f cross join lateral (
                  select w.ctid as place from outbox.parked w where w.ctid = f.place for update skip locked) o where f.behind) t
        where p.ctid = t.place
    ), $$, q.name, outbox.open_sql('w'), case when priority then ', (array_agg(f.priority order by f.id))[1] as priority' else '' end,
    outbox.ahead_sql('t.id'))
$function$;

-- A part of queue_N_lock(): the sweep, and what it alone took, which is the price of its stretch. `sweep_end` reads all of it at
-- once, and whoever reads `sweep` reads that first.
create function outbox.sweep_sql(q outbox.queue, columns text, condition text) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $function$
    select format($$sweep_begin as materialized (
        select clock_timestamp() as at where $7 is not null
    ), sweep as materialized (
        select s.* from sweep_begin b cross join lateral (
            select %4$s from %2$s e where e.%1$I between $7 and $8 and (%3$s) order by e.%1$I limit $6) s
    ), sweep_end as materialized (
        select count(*) as rows, max(s.id) as id, clock_timestamp() - (select b.at from sweep_begin b) as took from sweep s
    ), $$, q.id_column, q.tbl, condition, columns)
$function$;

-- Makes the function that finds what has become due, for a queue whose events pass what is not: sql/upkeep/delayed_due.sql in
-- plpgsql. It returns the end of its look, or of the last one. One call looks at a time: another's new entries would be waited for.
create function outbox.queue_build_due(q outbox.queue, condition text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $build$
begin
    execute format($function$
create function outbox.queue_%1$s_due(looked timestamptz) returns timestamptz
    language plpgsql
as $$
#variable_conflict use_column
<<look>>
declare
    most  constant int := 10000;
    until constant timestamptz := clock_timestamp();
    again boolean;
begin
    with due as materialized (
        select d.id, d.key from (
            select %2$s as id, %3$s as key from %4$s e
            where e.%5$I > coalesce($1 - interval '2 s', look.until) and e.%5$I <= look.until and (%6$s) order by e.%5$I) d
        where case when d.key is null then not exists (
                  select from outbox.parked p where p.queue = %7$L and p.keyless and p.event_id between d.id and d.id
                  order by p.event_id offset 0)
              else not exists (
                  select from outbox.parked p where p.queue = %7$L and not p.keyless and (p.event_id <= d.id or %9$s is not true)
                  and p.key between (d.key collate "default") and (d.key collate "default")
                  order by p.key offset 0) end
        limit most
    ), head as materialized (
        select k.key, k.id, p.place, l.ours
        from (select d.key, min(d.id) as id from due d where d.key is not null group by d.key) k
        left join lateral (
            select w.ctid as place from outbox.parked w
            where w.queue = %7$L and not w.keyless and w.key between (k.key collate "default") and (k.key collate "default")
            order by w.key offset 0) p on true
        left join lateral (select true as ours from outbox.parked w where w.ctid = p.place for update skip locked) l on true
    ), keyed as (
        insert into outbox.parked as p (queue, key, event_id, keyless, next_at)
        select %7$L, h.key, h.id, false, until from head h where h.place is null or h.ours order by h.key collate "C"
        on conflict (queue, key) where not keyless do update
        set %8$s
        where p.event_id > excluded.event_id and %9$s
    ), solo as (
        insert into outbox.parked (queue, key, event_id, keyless, next_at)
        select %7$L, '', d.id, true, until from due d where d.key is null order by d.id
        on conflict do nothing
    )
    select (select bool_or(h.place is not null and h.ours is null) from head h) or count(*) >= most into again from due;
    return case when again then looked else until end;
end
$$$function$, q.number, format('e.%I::bigint', q.id_column), outbox.column_sql(q.key_column, 'text'), q.tbl, q.not_before_column,
        condition, q.name, outbox.ahead_sql('excluded.event_id'), outbox.open_sql('p'));
end
$build$;

-- Events as SQL in the order of their priority, after the place (`priority`, `id`), numbered, at most `most`. What is not due is
-- marked as such, and counts: a queue with 100,000 of them at its top must not read them all for each call.
create function outbox.urgent_sql(q outbox.queue, condition text, priority text, id text, most text) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $$
    select format('(select u.*, row_number() over () as n from ('
                  'select a.* from (%1$s and e.%2$I between %3$s and %3$s and e.%4$I > %5$s order by e.%2$I desc, e.%4$I limit %6$s) a'
                  ' union all select b.* from (%1$s and e.%2$I < %3$s order by e.%2$I desc, e.%4$I limit %6$s) b limit %6$s) u)',
                  format('select e.%1$I::bigint as id, %2$s as key, %3$s as name, e.%4$I::bigint as priority, %5$s as due from %6$s e where (%7$s)',
                         q.id_column, outbox.column_sql(q.key_column, 'text'),
                         case when q.key_column is null then 'null' else 'e.' || quote_ident(q.key_column) end, q.priority_column,
                         case when q.not_before_column is null then 'true'
                              else format('(e.%1$I is null or e.%1$I <= clock_timestamp())', q.not_before_column) end, q.tbl, condition),
                  q.priority_column, priority, q.id_column, id, most)
$$;

-- Of such events those that may be taken (`free`) and the `last` one, if it is come to: at most so many, in their order. Only the
-- oldest event of a key counts; also when its wait is over, as it may have come to be the oldest just now.
create function outbox.free_sql(q outbox.queue, condition text, events text, most text, last text) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $function$
    select format($$(select w.key, w.id, w.priority, coalesce(p.expired, false) as expired, f.free, w.n from %2$s w
        left join lateral (
            (select p.next_at, p.token is not null as expired from outbox.parked p where w.key is not null and p.queue = %1$L
             and not p.keyless and p.key between (w.key collate "default") and (w.key collate "default") order by p.key offset 0)
            union all
            (select p.next_at, p.token is not null from outbox.parked p where w.key is null and p.queue = %1$L
             and p.keyless and p.event_id between w.id and w.id order by p.event_id offset 0)) p on true
        cross join lateral (select w.due and (p.next_at is null or p.next_at <= look.until)
             and case when w.key is null then w.id <> all ($10) else w.key <> all ($9) and %3$s end as free offset 0) f
        where f.free or w.n = %5$s
        limit %4$s)$$, q.name, events,
        case when q.key_column is null then 'true'
             when q.key_index then
                 format('not exists (select from %1$s e where (e.%2$I, e.%3$I) >= (w.name, -9223372036854775808) and (e.%2$I, e.%3$I) < (w.name, w.id)'
                        ' and (%4$s) order by e.%2$I desc, e.%3$I desc offset 0)', q.tbl, q.key_column, q.id_column, condition)
             else format('not exists (select from %1$s e where e.%2$I = w.name and e.%3$I < w.id and (%4$s))', q.tbl, q.key_column, q.id_column, condition) end,
        most, last)
$function$;

-- Makes queue_N_lock() where there is a priority; see queue_build(). Of `most` keys a tenth are those of the oldest events, up to a
-- quarter such whose wait is over, by time, and the others the most urgent. chance decides who gets a part of a place.
--
-- The most urgent of what? Of the oldest events, if that is all there are; else of `most` and some that are free after the
-- place (top_priority, top_id), too, among the next 2,000 by priority; and when it sweeps, of the 4,000 after (topped_priority,
-- topped_id). Both come back as the place to go on from.
create function outbox.queue_build_urgent(q outbox.queue, is_key text, condition text, filter text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $build$
declare
    top text := outbox.urgent_sql(q, filter, '$12', '$13', '2000');
begin
    execute format($function$
create function outbox.queue_%8$s_lock(most int, waits int, waits_from timestamptz, rows int, from_id bigint,
    sweep_rows int, sweep_from bigint, sweep_to bigint, keys text[], solos bigint[], sweeps boolean,
    inout top_priority bigint, inout top_id bigint, inout topped_priority bigint, inout topped_id bigint,
    out found_keys text[], out found_solos bigint[], out expired boolean, out oldest_wait timestamptz,
    out seen bigint, out seen_to bigint, out swept bigint, out swept_to bigint, out swept_in interval, out left_from bigint)
    language plpgsql
as $$
#variable_conflict use_column
<<look>>
declare
    until    constant timestamptz := clock_timestamp();
    chance   constant float8 := random();
    quarter  constant int := floor($1 / 4.0 + random());
begin
    with due as materialized (
        select case when not p.keyless then p.key end as key, p.event_id as id, p.token is not null as expired, p.next_at,
               row_number() over (order by p.next_at) as n
        from (select * from outbox.parked p
              where p.queue = %7$L and p.next_at between $3 and look.until and (p.keyless or %5$s)
              order by p.next_at limit $2) p
    ), page as materialized (
        select %2$s as id, %3$s as key, %11$s as priority from %1$s e where e.%10$I >= $5 and (%4$s) order by e.%10$I limit $4
    ), %16$s%15$sbacklog as materialized (
        select (select count(*) from page) >= $4 as any
    ), top as materialized (
        select * from %12$s t where (select b.any from backlog b)
    ), again as materialized (
        select * from %13$s w where $11 and (select b.any from backlog b)
    ), again_free as materialized (
        select * from %14$s w
    ), found as materialized (
        select f.key, min(f.id) as id, bool_or(f.expired) as expired, bool_or(f.by_id) as by_id,
               (array_agg(f.priority order by f.id))[1] as priority
        from (select key, id, priority, false as expired, true as by_id from ready
              union all select key, id, priority, expired, false from top where free
              union all select key, id, priority, expired, false from again_free) f
        group by f.key, case when f.key is null then f.id end
    ), place as (
        select f.key, f.id, f.expired, f.by_id, f.priority,
               least((row_number() over (order by f.id) - look.chance) * 10,
                     row_number() over (order by f.priority desc nulls last, f.id) / 0.9::float8) as place
        from found f
        union all
        select d.key, d.id, d.expired, false, null, case when d.n <= look.quarter then -1 else 2e9 + d.n end
        from due d where not exists (select from found f where f.key = d.key or d.key is null and f.key is null and f.id = d.id)
    ), candidate as materialized (
        select c.*, row_number() over (order by c.place, c.id) as n from place c order by n
    ), locked as materialized (
        select c.key, c.id, c.expired, c.n from candidate c
        where pg_try_advisory_xact_lock(%9$s, outbox.lock_hash(%6$L, c.key, c.id)) limit $1
    ), left_over as materialized (
        select c.* from candidate c where (select count(*) from locked) = $1 and c.n > (select max(l.n) from locked l)
    ), next as materialized (
        -- What was not tried; else, behind what was or, where too few were free, behind what was looked at, or the end.
        (select c.priority, greatest(c.id, -9223372036854775807) - 1 as id, 1 as n from left_over c
         where c.id in (select t.id from top t where t.free union all select g.id from again_free g)
         order by c.priority desc, c.id limit 1)
        union all
        (select t.priority, t.id, 2 from top t where (select count(*) from top) = $1 + 16 or t.n = 2000 order by t.n desc limit 1)
        union all
        (select $12, $13, 3 where not (select b.any from backlog b))
        union all
        (select -9223372036854775808, 9223372036854775807, 4)
        order by n limit 1
    ), over as (
        -- To the end or beyond the place where the top begins: from the beginning.
        select a.priority, a.id from again a cross join next n
        where (select count(*) from again) = 4000 and (a.priority > n.priority or a.priority = n.priority and a.id < n.id)
          and a.id = (select l.id from again l order by l.priority, l.id desc limit 1)
    ), again_next as (
        (select $14 as priority, $15 as id, 1 as n where not $11 or (select count(*) from again_free) >= $1 + 16)
        union all
        (select o.priority, o.id, 2 from over o)
        union all
        (select 9223372036854775807, -9223372036854775808, 3)
        order by n limit 1
    )
    select n.priority, n.id, a.priority, a.id,
           coalesce((select array_agg(l.key order by l.n) from locked l where l.key is not null), '{}'),
           coalesce((select array_agg(l.id order by l.n) from locked l where l.key is null), '{}'),
           coalesce((select bool_or(l.expired) from locked l), false),
           (select min(d.next_at) from due d),
           (select count(*) from page), (select max(p.id) from page p),
           (select w.rows from sweep_end w), (select w.id from sweep_end w), (select w.took from sweep_end w),
           (select min(c.id) from left_over c where c.by_id)
    into top_priority, top_id, topped_priority, topped_id, found_keys, found_solos, expired, oldest_wait, seen, seen_to, swept, swept_to, swept_in, left_from
    from next n cross join again_next a;
end
$$$function$, q.tbl, format('e.%I::bigint', q.id_column), outbox.column_sql(q.key_column, 'text'), condition, is_key, q.key_type, q.name, q.number,
        q.lock_class, q.id_column, format('e.%I::bigint', q.priority_column), outbox.free_sql(q, condition, top, '$1 + 16', '2000'),
        outbox.urgent_sql(q, filter, '$14', '$15', '4000'), outbox.free_sql(q, condition, 'again', '$1 + 16', 'null'),
        outbox.ready_sql(q, true),
        outbox.sweep_sql(q, format('e.%I::bigint as id, %s as key, e.%I::bigint as priority', q.id_column,
                                   outbox.column_sql(q.key_column, 'text'), q.priority_column), condition));
end
$build$;

-- A part of queue_N_lease(): `due` has the first event of each key that has become due since the last look of queue_N_due(), or a
-- little before it, as there; `unsure` whether there are too many of them to be read by each call.
create function outbox.became_due_sql(q outbox.queue) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $function$
    select format($$became as materialized (
        select %1$s as key, e.%2$I::bigint as id, e.%3$I as due_at from %4$s e
        where e.%3$I > $6 - interval '2 s' and e.%3$I <= look.until and (%5$s) order by e.%3$I desc limit 1000
    ), unsure as materialized (
        select $6 is null or count(*) = 1000 and min(b.due_at) > $6 as too_many from became b
    ), due as materialized (
        select b.key collate "default" as key, min(b.id) as id from became b where b.key is not null group by b.key
    ), $$, outbox.column_sql(q.key_column, 'text'), q.id_column, q.not_before_column, q.tbl, q.condition)
$function$;

-- Makes the functions that know one queue's table. Not EXECUTE in each call: planning took most of its time. Plans are
-- kept, and chosen when the queue may be empty: so each look-up says by its range and its order which index it is to use, as
-- in sql/claim/per_key_lock.sql. With a table that vacuum has seen empty, "id = any" was seen to read another index whole.
-- A column of the table may have the name of any of their variables. Beside it, where it would be taken for them, they are $n
-- or have the label of their block.
create function outbox.queue_build(q outbox.queue) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $build$
declare
    id         text := format('e.%I::bigint', q.id_column);
    key        text := outbox.column_sql(q.key_column, 'text');
    type       text := outbox.column_sql(q.type_column, 'text');
    created_at text := outbox.column_sql(q.created_at_column, 'timestamptz');
    filter     text := coalesce(q.condition, 'true');
    condition  text := filter;
    holds      boolean := q.not_before_column is not null and q.delayed = 'hold';
    waits      boolean := holds or outbox.comes_after(q); -- there are heads that are put aside
    due_at     text := 'null::timestamptz';
    head_from  text := 'coalesce(p.event_id, -9223372036854775808)'; -- where the head of a key is looked for
    became_due text := '';
    after_id   text := format('coalesce(%s)', concat_ws(', ', outbox.earlier_sql(q), outbox.undone_sql(q), 'null::bigint'));
    is_key     text := case q.key_type -- what is remembered of a key may be older than its column's type
        when 'bigint' then 'case when p.key ~ ''^-?[0-9]{1,19}$'' then p.key::numeric between -9223372036854775808'
                           ' and 9223372036854775807 end'
        when 'uuid' then 'p.key ~ ''^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$''' else 'true' end;
    event      text := format('%s as id, %s as type, %s as payload, %s as headers, %s as traceparent, %s as created_at', id, type,
        case when q.payload_column is null then 'row_to_json(e.*)::text' else outbox.column_sql(q.payload_column, 'text') end,
        outbox.column_sql(q.headers_column, 'text'), outbox.column_sql(q.traceparent_column, 'text'), created_at);
    next       outbox.queue;
    part       record; -- what goes on
    made       record;
begin
    if outbox.comes_after(q) then
        perform outbox.queue_build_after(q);
    end if;
    if holds then
        due_at := format('case when e.%1$I > clock_timestamp() then e.%1$I end', q.not_before_column);
    elsif q.not_before_column is not null then
        condition := format('(%1$s) and (e.%2$I is null or e.%2$I <= clock_timestamp())', condition, q.not_before_column);
        perform outbox.queue_build_due(q, condition);
        q.condition := condition;
        -- The entry of a key with many events is always behind the one that was taken last; what has become due before it is
        -- found by its time, so that nobody walks over what is done or not due yet, unless that is too much.
        if not outbox.has_due_index(q.tbl, q.not_before_column) then
            head_from := '-9223372036854775808';
        elsif q.key_type <> 'none' then
            head_from := 'case when u.too_many or p.event_id is null then -9223372036854775808 else least(p.event_id, d.id) end';
            became_due := outbox.became_due_sql(q);
        end if;
    end if;
    if waits then
        event := event || format(', %1$s as due_at, case when (%1$s) is null then %2$s end as after_id', due_at, after_id);
    end if;
    if q.priority_column is not null then
        event := event || format(', e.%I as priority', q.priority_column);
    end if;
    -- One look at what may be taken, oldest event first, and the locks of its keys: at most `most`, among `waits` waits that
    -- are over, `rows` events from from_id on, and `sweep_rows` from sweep_from to sweep_to. Keys in `keys` and `solos` are
    -- left out. left_from: from this id on there was no need to try a lock; null: all were tried.
    if q.priority_column is not null then
        perform outbox.queue_build_urgent(q, is_key, condition, filter);
    else
    execute format($function$
create function outbox.queue_%8$s_lock(most int, waits int, waits_from timestamptz, rows int, from_id bigint,
    sweep_rows int, sweep_from bigint, sweep_to bigint, keys text[], solos bigint[],
    out found_keys text[], out found_solos bigint[], out expired boolean, out oldest_wait timestamptz,
    out seen bigint, out seen_to bigint, out swept bigint, out swept_to bigint, out swept_in interval, out left_from bigint)
    language plpgsql
as $$
#variable_conflict use_column
declare
    until constant timestamptz := clock_timestamp(); -- by which the index is read; a volatile function would read all that wait
begin
    -- Keys are chosen behind materialized fences; the lock function runs row by row until there are enough.
    with due as materialized (
        select case when not p.keyless then p.key end as key, p.event_id as id, p.token is not null as expired, p.next_at
        from outbox.parked p
        where p.queue = %7$L and p.next_at between waits_from and until and (p.keyless or %5$s)
        order by p.next_at limit waits
    ), page as materialized (
        select %2$s as id, %3$s as key from %1$s e where e.%10$I >= $5 and (%4$s) order by e.%10$I limit $4
    ), %12$s%11$scandidate as materialized (
        select d.key, d.id, d.expired from due d union all select r.key, r.id, false from ready r order by id
    ), locked as materialized (
        select c.key, c.id, c.expired from candidate c
        where pg_try_advisory_xact_lock(%9$s, outbox.lock_hash(%6$L, c.key, c.id)) limit most
    )
    select coalesce((select array_agg(l.key) from locked l where l.key is not null), '{}'),
           coalesce((select array_agg(l.id) from locked l where l.key is null), '{}'),
           coalesce((select bool_or(l.expired) from locked l), false),
           (select min(d.next_at) from due d),
           (select count(*) from page), (select max(p.id) from page p),
           (select w.rows from sweep_end w), (select w.id from sweep_end w), (select w.took from sweep_end w),
           (select min(r.id) from ready r where (select count(*) from locked) = most and r.id > (select max(l.id) from locked l))
    into found_keys, found_solos, expired, oldest_wait, seen, seen_to, swept, swept_to, swept_in, left_from;
end
$$$function$, q.tbl, id, key, condition, is_key, q.key_type, q.name, q.number, q.lock_class, q.id_column,
        outbox.ready_sql(q, false), outbox.sweep_sql(q, format('%s as id, %s as key', id, key), condition));
    end if;

    -- The heads of locked keys, read by a statement that is younger than the locks, with a lease on each, at most on `most`. A key
    -- whose entry somebody has locked (pauses it, or wakes it: see queue_build_after()) is left, for two calls that have woken
    -- what the other leases must not wait for each other. For the same reason entries are made in the order of their keys, here
    -- and in queue_build_due().
    execute format($function$
create function outbox.queue_%1$s_lease(keys text[], solos bigint[], worker text, lease interval, most int, looked timestamptz)
    returns table (token uuid, id bigint, key text, type text, payload text, headers text, traceparent text,
                   created_at timestamptz, attempt int, expires_at timestamptz)
    language plpgsql
as $$
#variable_conflict use_column
<<look>>
declare
    until constant timestamptz := clock_timestamp();
begin
    return query
    with %12$shead as materialized (
        select k.key, p.place, p.failures * (p.event_id = h.id)::int as failures, gen_random_uuid() as token,
               clock_timestamp() + $4 as expires_at, h.*
        from unnest($1) k (key)
        left join lateral (
            select w.ctid as place, w.event_id, w.next_at, -- a lease that ran out is a failure of the event that was leased
                   (w.attempts + (w.token is not null)::int) * (w.token is null or w.event_id = w.taken_id)::int as failures
            from outbox.parked w
            where w.queue = %2$L and not w.keyless and w.key between k.key and k.key order by w.key offset 0) p on true
        left join lateral (
            select true as ours from outbox.parked w where w.ctid = p.place and p.next_at <= clock_timestamp() for update skip locked) l on true
        %13$sleft join lateral (%3$s) h on true
        where p.place is null or l.ours
        union all
        select null, p.place, p.failures, gen_random_uuid(), clock_timestamp() + $4, h.*
        from unnest($2) k (id)
        left join lateral (
            select w.ctid as place, w.event_id, w.next_at, w.attempts + (w.token is not null)::int as failures from outbox.parked w
            where w.queue = %2$L and w.keyless and w.event_id between k.id and k.id order by w.event_id offset 0) p on true
        left join lateral (
            select true as ours from outbox.parked w where w.ctid = p.place and p.next_at <= clock_timestamp() for update skip locked) l on true
        left join lateral (
            select %4$s from %5$s e where e.%6$I between k.id and k.id and %7$s is null and (%8$s) order by e.%6$I offset 0) h on true
        where p.place is null or l.ours
    ), ready as materialized (
        select h.* from head h where h.id is not null%9$s order by %11$sh.id limit $5
    ), leased as (
        insert into outbox.parked as p (queue, key, event_id, keyless, attempts, next_at, token, worker, taken_id, taken_at, lease)
        select %2$L, h.key, h.id, false, coalesce(h.failures, 0), h.expires_at, h.token, $3, h.id, clock_timestamp(), $4
        from ready h where h.key is not null order by h.key collate "C"
        on conflict (queue, key) where not keyless do update
        set event_id = excluded.event_id, attempts = excluded.attempts, -- paused meanwhile? then it is both
            next_at = case when p.resume_at is null then excluded.next_at else p.next_at end,
            resume_at = case when p.resume_at is not null then excluded.next_at end, token = excluded.token, worker = excluded.worker,
            taken_id = excluded.taken_id, taken_at = excluded.taken_at, lease = excluded.lease,
            backend_pid = null, backend_start = null, after_id = null,
            first_failed_at = case when p.attempts = 0 and excluded.attempts > 0 then excluded.first_failed_at -- by a lease that ran out
                                   else p.first_failed_at end,
            updated_at = excluded.updated_at
    ), leased_solo as (
        insert into outbox.parked as p (queue, key, event_id, keyless, attempts, next_at, token, worker, taken_id, taken_at, lease)
        select %2$L, '', h.id, true, coalesce(h.failures, 0), h.expires_at, h.token, $3, h.id, clock_timestamp(), $4
        from ready h where h.key is null order by h.id
        on conflict (queue, event_id) where keyless do update
        set attempts = excluded.attempts, next_at = excluded.next_at, token = excluded.token,
            worker = excluded.worker, taken_id = excluded.taken_id, taken_at = excluded.taken_at, lease = excluded.lease,
            backend_pid = null, backend_start = null, after_id = null,
            first_failed_at = case when p.attempts = 0 and excluded.attempts > 0 then excluded.first_failed_at else p.first_failed_at end,
            updated_at = excluded.updated_at
    ), %10$sgone as (
        delete from outbox.parked p using head h where p.ctid = h.place and h.id is null
    )
    select h.token, h.id, h.key, h.type, h.payload, h.headers, h.traceparent, h.created_at, coalesce(h.failures, 0) + 1, h.expires_at
    from ready h order by %11$sh.id;
end
$$$function$, q.number, q.name, outbox.head_sql(q, event, 'k.key', head_from), event, q.tbl,
        q.id_column, key, condition, case when waits then ' and h.due_at is null and h.after_id is null' else '' end,
        case when waits then outbox.delayed_sql(q) else '' end, case when q.priority_column is not null then 'h.priority desc nulls last, ' else '' end,
        became_due, case when became_due <> '' then 'cross join unsure u left join due d on d.key = k.key ' else '' end);

    -- Takes leased events out of the table, into the archive and the next queue, or, with a reason, to the dead letters; their
    -- entries go on to the next events of their keys, or go. Returns how many events were there.
    select x.* into next from outbox.queue x where x.name = q.then_queue;
    part := outbox.next_sql(q, next);
    execute format($function$
create function outbox.queue_%1$s_remove(tokens uuid[], ids bigint[], reason text, responses text[]) returns bigint
    language plpgsql
as $$
#variable_conflict use_column
declare
    gone bigint;
    went bigint;
begin
    with lease as materialized (
        select p.ctid as place, case when not p.keyless then p.key end as key, p.event_id, p.taken_id, p.attempts, p.token
        from outbox.parked p where p.token = any (tokens)
    ), event as materialized (
        select h.place, h.part from unnest(ids) i (id)
        cross join lateral (select e.ctid as place, e.tableoid as part from %2$s e where e.%3$I between i.id and i.id order by e.%3$I offset 0) h
    ), gone as (
        delete from %2$s e using event v where e.ctid = v.place and e.tableoid = v.part
        returning %4$s as id, %5$s as key, %6$s as type, %7$s as created_at, %10$s as original%13$s
    ), dead as (
        insert into outbox.dead (queue, event_id, key, type, reason, attempts, source_table, original, created_at)
        select %8$L, g.id, g.key, g.type, $3, l.attempts + 1, %9$L, g.original, g.created_at
        from gone g join lease l on l.taken_id = g.id where $3 is not null
    ), %11$s, %14$s, next as materialized (
        select l.place, h.id from lease l left join lateral (%12$s) h on true
    ), moved as (
        update outbox.parked p
        set event_id = coalesce(n.id, p.event_id), attempts = 0, last_error = '', updated_at = clock_timestamp(), token = null,
            next_at = case when p.resume_at is null then clock_timestamp() else p.next_at end,
            resume_at = case when p.resume_at is not null then clock_timestamp() end
        from next n where p.ctid = n.place and (n.id is not null or p.resume_at is not null)
    ), removed as (
        delete from outbox.parked p using next n where p.ctid = n.place and n.id is null and p.resume_at is null
    )
    select (select count(*) from gone), (select count(*) from handed) into gone, went;
    %15$sreturn gone;
end
$$$function$, q.number, q.tbl, q.id_column, id, key, type, created_at, q.name,
        (select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = q.tbl),
        'row_to_json(e.*)',
        case when q.after = 'archive' then
                 format('kept as (insert into outbox.archive (queue, event_id, key, created_at, original)'
                        ' select %L, id, key, created_at, original from gone where $3 is null)', q.name)
             else 'kept as (select)' end,
        outbox.head_sql(q, format('%s as id', id), 'l.key', 'l.event_id', format('e.%I <> l.taken_id', q.id_column)), part.taken,
        case when next.name is null then 'handed as (select)'
             else format('handed as (insert into %s (%s) select %s from gone g%s where $3 is null order by g.id returning 1)', next.tbl, part.columns,
                         part.given, case when q.then_payload = 'response' then
                             ' join lease l on l.taken_id = g.id join unnest(tokens, responses) r (token, response) on r.token = l.token'
                             else '' end) end,
        case when next.name is not null then format($check$if $3 is null and went < gone then
        raise exception '%% of %% rows did not go into %%: a trigger keeps them out', gone - went, gone, %L
            using errcode = 'object_not_in_prerequisite_state', hint = 'Nothing was changed; have it return the row, and try once more.';
    end if;
    $check$, next.tbl) end);

    -- For take() and the verdicts alone, which have the rights of the schema's owner. A superuser may be who calls this.
    for made in select p.oid::regprocedure as name from pg_proc p
                 where p.pronamespace = 'outbox'::regnamespace and p.proname ~ format('^queue_%s_', q.number) loop
        execute format('revoke all on function %s from public', made.name);
        execute format('alter function %s owner to %s', made.name,
                       (select n.nspowner::regrole from pg_namespace n where n.nspname = 'outbox'));
    end loop;
end
$build$;

create function outbox.mark_first(q outbox.queue) returns outbox.take_mark
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select (q.name, q.number, clock_timestamp(), -lim, -lim, null, 10000, '-infinity', null, null, lim, -lim - 1, lim, -lim - 1, '-infinity')::outbox.take_mark
      from (select 9223372036854775807) x (lim)
$$;

-- Where a queue's rows are what they were, its marks are, too; else they begin anew under the new number.
create function outbox.mark_keep(was outbox.queue, number int) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    m outbox.take_mark;
begin
    select t.* into m from outbox.take_mark t where t.queue = was.name and t.number = was.number order by t.moved_at desc limit 1;
    if found then
        m.number := mark_keep.number;
        insert into outbox.take_mark select m.*;
    end if;
end
$$;

-- sql/lease/lease_end_ownerless.sql in plpgsql: what a relay has leased whose backend is gone may be taken over.
create function outbox.end_ownerless(queue text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    with recursive owner as (
        (select p.backend_pid, p.backend_start from outbox.parked p
          where p.queue = end_ownerless.queue and p.token is not null and p.backend_pid is not null
          order by p.backend_pid, p.backend_start limit 1)
        union all
        select n.backend_pid, n.backend_start
        from owner o
        cross join lateral (
            select p.backend_pid, p.backend_start from outbox.parked p
             where p.queue = end_ownerless.queue and p.token is not null and p.backend_pid is not null
               and (p.backend_pid, p.backend_start) > (o.backend_pid, o.backend_start)
             order by p.backend_pid, p.backend_start limit 1) n
    ), over as materialized (
        select o.* from owner o
         where not exists (select from pg_stat_get_activity(o.backend_pid) a
                            where a.backend_start is null or a.backend_start = o.backend_start)
    )
    update outbox.parked p
       set next_at = case when p.resume_at is null then least(p.next_at, clock_timestamp()) else p.next_at end,
           resume_at = case when p.resume_at is not null then least(p.resume_at, clock_timestamp()) end,
           backend_pid = null, backend_start = null
      from over o
     cross join lateral (
        select w.ctid as place from outbox.parked w
         where w.queue = end_ownerless.queue and w.token is not null
           and w.backend_pid = o.backend_pid and w.backend_start = o.backend_start
         for update skip locked) l
     where p.ctid = l.place;
end
$$;

-- Where a call of take() begins to look, and whether it moves the marks: five times a second, or as seldom as every other
-- second where that costs much. It finds what has become due then, wakes who waits for what is done, and misses relays.
create function outbox.mark_begin(q outbox.queue, out m outbox.take_mark, out moves boolean)
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    began timestamptz := clock_timestamp();
    given constant text := current_setting('lock_timeout');
begin
    select * into m from outbox.take_mark t where t.queue = q.name and t.number = q.number order by t.moved_at desc limit 1;
    if not found then
        m := outbox.mark_first(q);
    end if;
    moves := m.due_at <= began -- not all at once, unless somebody may wait for what it finds
             and (outbox.comes_after(q) or coalesce(q.priority_column, case when q.delayed = 'pass' then q.not_before_column end) is not null
                  or random() < 0.25 or m.due_at < began - interval '1 s');
    if not moves then
        return;
    end if;
    m.waits_from := '-infinity';
    perform outbox.end_ownerless(q.name);
    if q.delayed = 'pass' and q.not_before_column is not null
       and pg_try_advisory_xact_lock(-1820236097, q.number) then -- FNV-1a of "pgcourier:due"
        begin
            perform outbox.wait_at_most(given, '100 ms');
            execute format('select outbox.queue_%s_due($1)', q.number) using m.due_to into m.due_to;
            perform set_config('lock_timeout', given, true);
        exception
            when lock_not_available then -- a key is just being taken, by whom we do not see: all are looked for another time
        end;
    end if;
    if outbox.comes_after(q) then
        execute format('select outbox.queue_%s_after($1)', q.number) using m.asked_to into m.asked_to;
    end if;
end
$$;

-- Locks the keys of at most n events, the oldest that nobody has and that wait for nothing.
--
-- It looks from from_id on, at about `walk` rows. Below m.low are keys that wait, or whose lock somebody had: a call that moves
-- the marks looks at all waits, and at the next stretch of ids there. next_id: the next look goes on here. more: there may be
-- more. left_from: all before were tried, or wait.
create function outbox.lock_keys(q outbox.queue, n int, from_id bigint, walk int, moves boolean, inout m outbox.take_mark,
    out keys text[], out solos bigint[], out expired boolean, out next_id bigint, out more boolean, out left_from bigint, out walked int)
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    began    timestamptz := clock_timestamp();
    rows     int := least(16 + 2 * n, walk);
    below    constant bigint := greatest(m.low, -9223372036854775807) - 1;
    sweep_to bigint;
    look     record;
begin
    keys := '{}'; solos := '{}'; expired := false; walked := 0; next_id := from_id;
    if moves then
        sweep_to := least(coalesce(m.swept, 0)::numeric + m.sweep_span, below);
    end if;
    for pass in 1..6 loop
        execute format('select * from outbox.queue_%s_lock($1, $2, $3, $4, $5, 1000, $6, $7, $8, $9%s)', q.number,
                       case when q.priority_column is not null then ', $10, $11, $12, $13, $14' end)
            using n - cardinality(keys) - cardinality(solos), case when pass = 1 then 2 * n + 16 else 0 end, m.waits_from, rows, next_id,
                  case when moves and pass = 1 then coalesce(m.swept + 1, -9223372036854775808) end, sweep_to, keys, solos,
                  moves and pass = 1, m.top_priority, m.top_id, m.topped_priority, m.topped_id
            into look;
        if q.priority_column is not null then
            m.top_priority := look.top_priority;
            m.top_id := look.top_id;
            m.topped_priority := look.topped_priority;
            m.topped_id := look.topped_id;
        end if;
        keys := keys || look.found_keys;
        solos := solos || look.found_solos;
        expired := expired or look.expired;
        left_from := least(left_from, look.left_from);
        if moves and pass = 1 then
            m.waits_from := coalesce(look.oldest_wait, began) - interval '2 s';
            m.swept := case when look.swept = 1000 then look.swept_to when sweep_to < below then sweep_to end;
            -- Up to 2^62, as ids that the application chooses may lie anywhere; but no further than it is of use.
            m.sweep_span := case when look.swept_in > interval '20 ms' then greatest(m.sweep_span / 4, 500)
                                 when look.swept_in < interval '5 ms' and m.swept = sweep_to then least(m.sweep_span, 1152921504606846976) * 4
                                 else m.sweep_span end;
        end if;
        walked := walked + look.seen;
        next_id := coalesce(look.seen_to + (look.seen_to < 9223372036854775807)::int, next_id);
        more := look.seen = rows;
        exit when not more or cardinality(keys) + cardinality(solos) >= n or walked >= walk;
        rows := least(rows * 2, walk - walked);
    end loop;
    left_from := least(left_from, next_id);
    more := more or left_from < next_id;
    next_id := greatest(left_from, m.low);
end
$$;

-- Moves the marks. One is used when the next move agrees with it: what got an id before another event and is committed a
-- little after it is not passed. Old rows that another call has deleted are left to it: it may not commit for long.
create function outbox.mark_end(m outbox.take_mark, left_from bigint, took interval) returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    insert into outbox.take_mark (queue, number, moved_at, low, next_low, swept, sweep_span, waits_from, due_to, asked_to,
                                  top_priority, top_id, topped_priority, topped_id, due_at)
    values (m.queue, m.number, clock_timestamp(), least(m.next_low, left_from), left_from, m.swept, m.sweep_span, m.waits_from, m.due_to, m.asked_to,
            m.top_priority, m.top_id, m.topped_priority, m.topped_id, clock_timestamp() + least(greatest(interval '200 ms', 20 * took), interval '2 s'))
    on conflict do nothing;
    delete from outbox.take_mark t
     where t.ctid = any (array(
        select o.ctid from outbox.take_mark o
         where o.queue = m.queue and o.number = m.number and o.moved_at between m.moved_at - interval '1 min' and clock_timestamp() - interval '10 s'
           for update skip locked));
$$;

-- Refuses what cannot work, before anything is done.
create function outbox.check_worker_call() returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if current_setting('transaction_read_only')::boolean then
        raise exception 'workers write down what they take and what became of it, and this transaction is read-only'
            using errcode = 'read_only_sql_transaction', hint = 'begin read write; on the primary, if this is a standby.';
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'workers need transactions of isolation level read committed, and this one is %',
                        current_setting('transaction_isolation')
            using errcode = 'invalid_transaction_state',
                  hint = 'A snapshot from before the locks would show events that are done. begin isolation level read committed;';
    end if;
end
$$;

-- What became of leased events is written down: they leave their table. One that somebody updated while it was deleted has
-- stayed, as it is found by its place; it is deleted by the next try, which sees where it is now.
create function outbox.remove_leased(q outbox.queue, tokens uuid[], reason text, responses text[]) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    ids  bigint[] := (select array_agg(p.taken_id) from outbox.parked p where p.token = any (tokens));
    gone bigint;
    kept bigint;
begin
    for try in 1..5 loop
        begin
            execute format('select outbox.queue_%s_remove($1, $2, $3, $4)', q.number) using tokens, ids, reason, responses into gone;
            exit when gone = cardinality(ids);
            execute format('select e.%1$I from %2$s e where e.%1$I = any ($1) and (%3$s) limit 1', q.id_column, q.tbl,
                           coalesce(q.condition, 'true')) using ids into kept;
            exit when kept is null;
            raise exception 'event % is still in % after DELETE: a trigger or policy keeps it, or it is updated all the time', kept, q.tbl
                using errcode = 'object_not_in_prerequisite_state', hint = 'Nothing was changed; mend what keeps it, and try once more.';
        exception
            when object_not_in_prerequisite_state then
                if kept is null or try = 5 then
                    raise;
                end if;
                kept := null;
        end;
    end loop;
end
$$;

-- Ends leases by one verdict and returns how many of them were still there: the others change nothing. `what` is the function that
-- was called, where it is not called like the verdict.
create function outbox.end_leases(verdict text, tokens uuid[], error text default null, fatal boolean default false,
    term interval default null, responses text[] default null, what text default null) returns int
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    held  uuid[];
    ended int := 0;
    used  outbox.queue[];
    q     outbox.queue;
    mine  uuid[];
    last  uuid[];
    given text[]; -- of `last`
begin
    perform outbox.check_worker_call();
    if tokens is null or array_position(tokens, null) is not null then
        raise exception '%: a token is null', coalesce(what, verdict)
            using errcode = 'null_value_not_allowed', hint = 'Give what take() returned as token.';
    end if;
    if cardinality(tokens) > 1000 then
        raise exception '%: at most 1000 tokens, not %', coalesce(what, verdict), cardinality(tokens)
            using errcode = 'invalid_parameter_value', hint = 'Each takes a slot in the lock table of the server until you commit.';
    end if;
    if cardinality(responses) <> cardinality(tokens) then
        raise exception '%: % responses to % tokens', coalesce(what, verdict), cardinality(responses), cardinality(tokens)
            using errcode = 'invalid_parameter_value', hint = 'Give one for each, or null.';
    end if;
    select array_agg(outbox.queue_use(l.name)) into used
      from (select distinct w.queue as name from unnest(tokens) t (token)
             cross join lateral (select p.queue from outbox.parked p where p.token between t.token and t.token order by p.token offset 0) w offset 0) l;
    -- While a term lasts nobody takes the key over, and its lock may be with a relay that found it busy. When it is over,
    -- whoever has the lock may be delivering the event.
    select array_agg(p.token) into held
      from (select w.token, coalesce(w.resume_at, w.next_at) as over_at,
                   pg_try_advisory_xact_lock(x.lock_class, outbox.lock_hash(x.key_type, case when not w.keyless then w.key end, w.event_id)) as got
              from unnest(tokens) t (token)
             cross join lateral (select l.* from outbox.parked l where l.token between t.token and t.token order by l.token offset 0) w
              join unnest(used) x on x.name = w.queue offset 0) p
     where p.got or p.over_at > clock_timestamp();
    perform from outbox.parked p where p.token = any (held) order by p.token for update;
    foreach q in array coalesce(used, '{}') loop
        select array_agg(p.token),
               array_agg(p.token) filter (where verdict = 'done' or verdict = 'fail' and (fatal or p.attempts + 1 >= q.max_attempts))
          into mine, last
          from outbox.parked p where p.token = any (held) and p.queue || '' = q.name; -- by their tokens, not all of the queue
        continue when mine is null;
        ended := ended + cardinality(mine);
        given := case when responses is not null then (
            select array_agg(r.response order by l.place) from unnest(last) with ordinality l (token, place)
              join (select distinct on (t.token) t.token, t.response from unnest(tokens, responses) t (token, response)) r on r.token = l.token) end;
        if q.then_payload <> 'response' and array_remove(given, null) <> '{}' then
            raise exception '%: queue % hands no response on', coalesce(what, verdict), quote_literal(q.name)
                using errcode = 'invalid_parameter_value', hint = 'Leave it out, or have queue_set(…, then_payload => ''response'').';
        end if;
        if last is not null and (verdict = 'done' or q.on_exhausted = 'dead_letter') then
            perform outbox.remove_leased(q, last, case when verdict = 'fail' then coalesce(error, 'failed') end, given);
        end if;
        update outbox.parked p
           set next_at = case when p.resume_at is null then w.until else p.next_at end, -- a pause stays one
               resume_at = case when p.resume_at is not null then w.until end,
               attempts = case when w.passed then 0 else p.attempts + (verdict = 'fail')::int end,
               event_id = case when verdict = 'fail' and p.token = any (last) then p.taken_id else p.event_id end,
               first_failed_at = case when verdict = 'fail' and p.attempts = 0 then clock_timestamp() else p.first_failed_at end,
               last_error = case when w.passed then '' when verdict = 'fail' then coalesce(error, 'failed') else p.last_error end,
               token = case when verdict = 'extend' then p.token end,
               lease = coalesce(term, p.lease),
               updated_at = clock_timestamp()
          from (select t.token, t.passed,
                       case when verdict = 'extend' then clock_timestamp() + coalesce(term, t.lease)
                                     when verdict = 'release' or t.passed then clock_timestamp()
                                     when t.token = any (last) then 'infinity'
                                     else clock_timestamp() + interval '1 ms' + random() * greatest(interval '0',
                                         least(q.retry_base * power(2, least(t.attempts, 30)), q.retry_max) - interval '1 ms') end as until
                  from (select l.*, -- another was put back in front of it, or has become due: that is next, and has no failures
                               l.event_id <> l.taken_id and verdict in ('fail', 'release') and (l.token = any (last)) is not true as passed
                          from outbox.parked l where l.token = any (mine)) t) w
         where p.token = w.token;
    end loop;
    perform nextval('outbox.late_verdicts') from generate_series(1, (select count(distinct t) from unnest(tokens) t) - ended);
    return ended;
end
$$;

-- The key of an event that cannot leave its table, and whose attempts are over, is closed, so that no call of take() fails
-- because of it.
create function outbox.close_leased(token uuid, error text) returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    update outbox.parked p
       set next_at = 'infinity', resume_at = case when p.resume_at is not null then 'infinity'::timestamptz end,
           attempts = p.attempts + 1, last_error = left(error, 1000), event_id = p.taken_id, token = null, updated_at = clock_timestamp(),
           first_failed_at = case when p.attempts = 0 then clock_timestamp() else p.first_failed_at end
     where p.token = close_leased.token
$$;

create function outbox.check_lease(what text, lease interval) returns void
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if lease is null or lease not between '100 ms' and '30 days' then
        raise exception '%: the lease must be between 100 ms and 30 days, not %', what, coalesce(lease::text, 'null')
            using errcode = 'invalid_parameter_value', hint = 'Give an interval like ''1 minute''; extend() makes it longer.';
    end if;
end
$$;

-- The constraints of these tables that are looked at when a transaction commits, as names for SET CONSTRAINTS. Not all: what a
-- worker's transaction has put off elsewhere is its own. But ALL where one is in a schema that we may not use, and so not name.
-- `again` are those of them that can be put off again: a name stands for all constraints of its schema that have it, and one
-- that cannot be put off, or is not by itself, is to stay as it is.
create function outbox.deferred_constraints(tables regclass[], out now text, out again text)
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select case when bool_or(not d.ours) then 'all' else coalesce(string_agg(d.name, ', '), '') end,
           case when bool_or(not d.ours) then '' else coalesce(string_agg(d.name, ', ') filter (where d.alike), '') end
      from (select format('%I.%I', n.nspname, c.conname) as name, has_schema_privilege(n.oid, 'usage') as ours,
                   not exists (select from pg_constraint o where o.connamespace = c.connamespace and o.conname = c.conname
                                                             and not o.condeferred) as alike
              from unnest(tables) a (tbl)
              cross join lateral (select a.tbl::oid union select p.relid from pg_partition_tree(a.tbl) p) t (tbl)
              join pg_trigger g on g.tgrelid = t.tbl and g.tginitdeferred
              join pg_constraint c on c.oid = g.tgconstraint
              join pg_namespace n on n.oid = c.connamespace
             group by n.oid, n.nspname, c.conname, c.connamespace) d
$$;

-- Looks at them now, and puts off again what it may. Of ALL, some may not have been put off.
create function outbox.look_at_constraints(now text, again text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if now <> '' then
        execute format('set constraints %s immediate', now);
    end if;
    if again <> '' then
        execute format('set constraints %s deferred', again);
    end if;
end
$$;

-- Up to n events, each of another key, for `worker` until the lease is over. Commit before you work on them.
create function outbox.take(queue text, n int default 1, worker text default null, lease interval default '1 minute')
    returns table (token uuid, id bigint, key text, type text, payload text, headers text, traceparent text,
                   created_at timestamptz, attempt int, expires_at timestamptz)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_sort = off
    set jit = off
as $$
declare
    began     timestamptz := clock_timestamp();
    q         outbox.queue;
    waits     boolean; -- heads may be put aside
    mark      record;
    took      interval;
    locked    record;
    lost      record;
    deferred  record;
    from_id   bigint;
    left_from bigint;
    got       int;
    had       int;
    free      int := n;
    keys      int := n;     -- to look for
    room      int := 2000;  -- for locks: each is held until the commit
    walk      int := 20000; -- rows to look at
begin
    perform outbox.check_worker_call();
    if n is null or n not between 1 and 1000 then
        raise exception 'take: n must be between 1 and 1000, not %', coalesce(n::text, 'null')
            using errcode = 'invalid_parameter_value', hint = 'Every event takes a slot in the lock table of the server until you commit.';
    end if;
    perform outbox.check_lease('take', lease);
    q := outbox.queue_use(take.queue);
    if q.name is null then
        raise exception 'take: there is no queue %', coalesce(quote_literal(take.queue), 'null')
            using errcode = 'undefined_object',
                  hint = coalesce('There are: ' || (select string_agg(x.name, ', ' order by x.name) from outbox.queue x) || '.',
                                  'Its owner makes one with outbox.queue_set().');
    end if;
    if exists (select from outbox.paused p where p.queue = q.name and p.key is null) then
        return;
    end if;
    waits := outbox.comes_after(q) or q.not_before_column is not null and q.delayed = 'hold';
    mark := outbox.mark_begin(q);
    from_id := (mark.m).low;
    -- What is not due, or comes after others, is put aside, and others are looked for: ever more at a time, so that many that
    -- wait are soon behind us. What was found in excess is left, and nobody's when this commits.
    for look in 1 .. case when waits then 20 else 1 end loop
        locked := outbox.lock_keys(q, keys, from_id, walk, mark.moves and look = 1, mark.m);
        mark.m := locked.m;
        if exists (select from outbox.paused p where p.queue = q.name and p.key is null) then -- since we looked; `drain` may have looked for locks before we had these
            return;
        end if;
        took := coalesce(took, clock_timestamp() - began);
        if locked.expired then
            -- Whoever had these has lost them. A verdict that waits for the row behind us finds another token. An entry that another
            -- call has changed without its key's lock (turned it, or noticed the end of its owner) is left for another time.
            for lost in
                select p.token, coalesce(p.worker, '') as worker, p.attempts, p.keyless, p.key, p.event_id, l.ours from outbox.parked p
                  left join lateral (select true as ours from outbox.parked w where w.ctid = p.ctid for update skip locked) l on true
                 where p.queue = q.name and p.token is not null and p.next_at <= clock_timestamp()
                   and (p.keyless and p.event_id = any (locked.solos) or not p.keyless and p.key = any (locked.keys))
                 order by p.token
            loop
                if lost.ours is null and lost.keyless then
                    locked.solos := array_remove(locked.solos, lost.event_id);
                elsif lost.ours is null then
                    locked.keys := array_remove(locked.keys, lost.key);
                end if;
                continue when lost.ours is null;
                continue when lost.attempts + 1 < q.max_attempts;
                if deferred is null then
                    deferred := outbox.deferred_constraints(array[q.tbl, 'outbox.dead']);
                end if;
                begin
                    perform outbox.end_leases('fail', array[lost.token], format('the lease of %s ran out', lost.worker));
                    perform outbox.look_at_constraints(deferred.now, deferred.again);
                exception
                    when others then
                        if sqlstate ~ '^(40|53|55P|57|58|XX)' then -- not because of this row
                            raise;
                        end if;
                        perform outbox.close_leased(lost.token, sqlerrm);
                end;
            end loop;
        end if;
        return query execute format('select * from outbox.queue_%s_lease($1, $2, $3, $4, $5, $6)', q.number)
            using locked.keys, locked.solos,
                  left(coalesce(take.worker, nullif(current_setting('application_name'), ''), session_user), 200), take.lease, free, (mark.m).due_to;
        get diagnostics got = row_count;
        had := cardinality(locked.keys) + cardinality(locked.solos);
        left_from := case when left_from < (mark.m).low then left_from when got = free and had > got then from_id else locked.left_from end;
        from_id := locked.next_id;
        free := free - got;
        room := room - had;
        walk := walk - locked.walked;
        keys := case when look < 4 then free else greatest(free, 2 * keys) end;
        exit when free = 0 or not locked.more and got = had or room < keys or walk <= 0;
    end loop;
    if mark.moves then
        perform outbox.mark_end(mark.m, left_from, took);
    end if;
end
$$;

-- The verdicts. Each is true when it counted, and false when the lease was over and the event is somebody else's.

-- With a response where the queue hands that on as payload.
create function outbox.done(token uuid, response text default null) returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_sort = off
    set jit = off
as $$ select outbox.end_leases('done', array[token], responses => case when response is not null then array[response] end) = 1 $$;

-- For many at once; how many counted.
create function outbox.done_all(tokens uuid[], responses text[] default null) returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_sort = off
    set jit = off
as $$ select outbox.end_leases('done', tokens, responses => responses, what => 'done_all') $$;

-- It is tried again after a wait; after the last attempt, or when it is fatal, it is given up as the queue says.
create function outbox.fail(token uuid, error text, fatal boolean default false) returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_sort = off
    set jit = off
as $$ select outbox.end_leases('fail', array[token], left(coalesce(error, 'failed'), 1000), coalesce(fatal, false)) = 1 $$;

-- The term begins anew; by default it is as long as the last one that was given.
create function outbox.extend(token uuid, lease interval default null) returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_sort = off
    set jit = off
as $$
begin
    if lease is not null then
        perform outbox.check_lease('extend', lease);
    end if;
    return outbox.end_leases('extend', array[token], term => lease) = 1;
end
$$;

-- Gives it back untouched: no attempt is counted.
create function outbox.release(token uuid) returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_sort = off
    set jit = off
as $$ select outbox.end_leases('release', array[token]) = 1 $$;

-- Who has what, since when and for how long; those with `over` were not taken over yet. A pause of the key does not prolong a lease.
create view outbox.status_leases as
    select queue, case when not keyless then key end as key, taken_id as event_id, worker, taken_at, coalesce(resume_at, next_at) as expires_at,
           coalesce(resume_at, next_at) <= clock_timestamp() as over, attempts + 1 as attempt
      from outbox.parked
     where token is not null;

create view outbox.status_late_verdicts as
    select last_value + is_called::int as verdicts from outbox.late_verdicts;

revoke all on all functions in schema outbox from public;
