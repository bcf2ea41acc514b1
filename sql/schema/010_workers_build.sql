-- 010_workers_build: the functions that queue_set() makes for each queue, from the text of 009_workers_text.

-- Makes the function that finds what has become due, for a queue whose events pass what is not. One call looks at a time: another's
-- new entries would be waited for.
create function outbox.queue_build_due(q outbox.queue, condition text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $build$
begin
    execute format($function$
create function outbox.queue_%s_due(queue text, from_us bigint, events bigint, out events_found bigint, out looked_to bigint)
    language plpgsql
as $$
#variable_conflict use_column
begin
    %s
    into events_found, looked_to;
end
$$$function$, q.number, outbox.statement_with($statement$
-- include upkeep/delayed_due.sql
$statement$, jsonb_build_object(
        'table', q.tbl, 'where', condition, 'state', 'outbox', 'id', format('e.%I', q.id_column),
        'key', outbox.column_sql(q.key_column, 'text'), 'not_before', format('e.%I', q.not_before_column))));
end
$build$;

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
    sweep_rows int, sweep_from bigint, sweep_to bigint, keys text[], keyless_ids bigint[], sweeps boolean,
    inout top_priority bigint, inout top_id bigint, inout topped_priority bigint, inout topped_id bigint,
    out found_keys text[], out found_keyless bigint[], out expired boolean, out oldest_wait timestamptz,
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
    into top_priority, top_id, topped_priority, topped_id, found_keys, found_keyless, expired, oldest_wait, seen, seen_to, swept, swept_to, swept_in, left_from
    from next n cross join again_next a;
end
$$$function$, q.tbl, format('e.%I::bigint', q.id_column), outbox.column_sql(q.key_column, 'text'), condition, is_key, q.key_type, q.name, q.number,
        q.lock_class, q.id_column, format('e.%I::bigint', q.priority_column), outbox.unlock_sql(q, condition, top, '$1 + 16', '2000'),
        outbox.urgent_sql(q, filter, '$14', '$15', '4000'), outbox.unlock_sql(q, condition, 'again', '$1 + 16', 'null'),
        outbox.ready_sql(q, true),
        outbox.sweep_sql(q, format('e.%I::bigint as id, %s as key, e.%I::bigint as priority', q.id_column,
                                   outbox.column_sql(q.key_column, 'text'), q.priority_column), condition));
end
$build$;

-- Makes the functions that know one queue's table. Not EXECUTE in each call: planning took most of its time. Plans are
-- kept, and chosen when the queue may be empty: so each look-up says by its range and its order which index it is to use, as
-- in sql/claim/lock_ids.sql. With a table that vacuum has seen empty, "id = any" was seen to read another index whole.
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
    waits      boolean := holds or outbox.comes_after(q); -- some heads may have to be skipped
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
        if not outbox.has_due_index(q.tbl, outbox.attnum_of(q.tbl, q.not_before_column)) then
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
    -- are over, `rows` events from from_id on, and `sweep_rows` from sweep_from to sweep_to. Keys in `keys` and `keyless_ids` are
    -- left out. left_from: from this id on there was no need to try a lock; null: all were tried.
    if q.priority_column is not null then
        perform outbox.queue_build_urgent(q, is_key, condition, filter);
    else
    execute format($function$
create function outbox.queue_%8$s_lock(most int, waits int, waits_from timestamptz, rows int, from_id bigint,
    sweep_rows int, sweep_from bigint, sweep_to bigint, keys text[], keyless_ids bigint[],
    out found_keys text[], out found_keyless bigint[], out expired boolean, out oldest_wait timestamptz,
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
    into found_keys, found_keyless, expired, oldest_wait, seen, seen_to, swept, swept_to, swept_in, left_from;
end
$$$function$, q.tbl, id, key, condition, is_key, q.key_type, q.name, q.number, q.lock_class, q.id_column,
        outbox.ready_sql(q, false), outbox.sweep_sql(q, format('%s as id, %s as key', id, key), condition));
    end if;

    -- The heads of locked keys, read by a statement that is younger than the locks, with a lease on each, at most on `most`. A key
    -- whose entry somebody has locked (pauses it, or wakes it: see queue_build_after()) is left, for two calls that have woken
    -- what the other leases must not wait for each other. For the same reason entries are made in the order of their keys, here
    -- and in queue_build_due().
    execute format($function$
create function outbox.queue_%1$s_lease(keys text[], keyless_ids bigint[], worker text, lease interval, most int, looked timestamptz)
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
    ), leased_keyless as (
        insert into outbox.parked as p (queue, key, event_id, keyless, attempts, next_at, token, worker, taken_id, taken_at, lease)
        select %2$L, '', h.id, true, coalesce(h.failures, 0), h.expires_at, h.token, $3, h.id, clock_timestamp(), $4
        from ready h where h.key is null order by h.id
        on conflict (queue, event_id) where keyless do update
        set attempts = excluded.attempts, next_at = excluded.next_at, token = excluded.token,
            worker = excluded.worker, taken_id = excluded.taken_id, taken_at = excluded.taken_at, lease = excluded.lease,
            backend_pid = null, backend_start = null, after_id = null,
            first_failed_at = case when p.attempts = 0 and excluded.attempts > 0 then excluded.first_failed_at else p.first_failed_at end,
            updated_at = excluded.updated_at
    ), %10$sdeleted as (
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
    deleted_count bigint;
    went bigint;
begin
    with lease as materialized (
        select p.ctid as place, case when not p.keyless then p.key end as key, p.event_id, p.taken_id, p.attempts, p.token
        from outbox.parked p where p.token = any (tokens)
    ), event as materialized (
        select h.place, h.part from unnest(ids) i (id)
        cross join lateral (select e.ctid as place, e.tableoid as part from %2$s e where e.%3$I between i.id and i.id order by e.%3$I offset 0) h
    ), deleted as (
        delete from %2$s e using event v where e.ctid = v.place and e.tableoid = v.part
        returning %4$s as id, %5$s as key, %6$s as type, %7$s as created_at, %10$s as original%13$s
    ), dead as (
        insert into outbox.dead (queue, event_id, key, type, reason, attempts, source_table, original, created_at)
        select %8$L, g.id, g.key, g.type, $3, l.attempts + 1, %9$L, g.original, g.created_at
        from deleted g join lease l on l.taken_id = g.id where $3 is not null
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
    select (select count(*) from deleted), (select count(*) from handed) into deleted_count, went;
    %15$sreturn deleted_count;
end
$$$function$, q.number, q.tbl, q.id_column, id, key, type, created_at, q.name,
        (select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = q.tbl),
        'row_to_json(e.*)',
        case when q.after = 'archive' then
                 format('kept as (insert into outbox.archive (queue, event_id, key, created_at, original)'
                        ' select %L, id, key, created_at, original from deleted where $3 is null)', q.name)
             else 'kept as (select)' end,
        outbox.head_sql(q, format('%s as id', id), 'l.key', 'l.event_id', format('e.%I <> l.taken_id', q.id_column)), part.taken,
        case when next.name is null then 'handed as (select)'
             else format('handed as (insert into %s (%s) select %s from deleted g%s where $3 is null order by g.id returning 1)', next.tbl, part.columns,
                         part.given, case when q.then_payload = 'response' then
                             ' join lease l on l.taken_id = g.id join unnest(tokens, responses) r (token, response) on r.token = l.token'
                             else '' end) end,
        case when next.name is not null then format($check$if $3 is null and went < deleted_count then
        raise exception '%% of %% rows did not go into %%: a trigger keeps them out', deleted_count - went, deleted_count, %L
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
