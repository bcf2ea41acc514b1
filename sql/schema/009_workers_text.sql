-- 009_workers_text: workers that pull, in SQL and so in any language. docs/workers.md shows how.
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
    ), delayed_keyless as (
        insert into outbox.parked as p (queue, key, event_id, keyless, next_at, after_id)
        select %1$L, '', h.id, true, coalesce(h.due_at, clock_timestamp() + interval '1 hour'), h.after_id
        from head h where (h.due_at is not null or h.after_id is not null) and h.key is null order by h.id
        on conflict (queue, event_id) where keyless do update
        set attempts = 0, last_error = '', next_at = excluded.next_at, token = null, after_id = excluded.after_id,
            updated_at = excluded.updated_at,
            first_failed_at = case when p.after_id is not null then p.first_failed_at else excluded.first_failed_at end
    ), $$, q.name)
$function$;

-- Makes the function that wakes the keys whose events come after others that are done by now.
create function outbox.queue_build_after(q outbox.queue) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $build$
begin
    execute format($function$
create function outbox.queue_%s_after(queue text, asked_to bigint, events bigint, entries bigint, out woken bigint, out last bigint)
    language plpgsql
as $$
#variable_conflict use_column
begin
    %s
    into woken, last;
end
$$$function$, q.number, outbox.statement_with($statement$
-- include upkeep/after_look.sql
$statement$, jsonb_build_object(
        'table', q.tbl, 'state', 'outbox', 'id', format('e.%I', q.id_column), 'lives', (q.after_column is not null)::text,
        'undone', case when q.after_column is not null then coalesce(q.condition, 'true') else 'true' end)));
end
$build$;

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
create function outbox.unlock_sql(q outbox.queue, condition text, events text, most text, last text) returns text
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
