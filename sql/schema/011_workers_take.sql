-- 011_workers_take: taking events by SQL. 009_workers_text has the design.

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

-- The terms of leases whose backend is gone end now, and their events may be taken over. Returns how many there are.
create function outbox.end_ownerless(queue text) returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    ended bigint;
begin
    -- include lease/lease_end_ownerless.sql
    into ended;
    return ended;
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
            -- What there was too much of, or was locked, is asked for again.
            execute format('select case when d.events_found < $3 then ''epoch''::timestamptz + d.looked_to * interval ''1 us'' else $2 end'
                           '  from outbox.queue_%s_due($1, (extract(epoch from $2) * 1000000)::bigint, $3) d', q.number)
                using q.name, m.due_to, 10000 into m.due_to;
            perform set_config('lock_timeout', given, true);
        exception
            when lock_not_available then -- a key is just being taken, by whom we do not see: all are looked for another time
        end;
    end if;
    if outbox.comes_after(q) then
        execute format('select a.last from outbox.queue_%s_after($1, $2, 1000, 5000) a', q.number)
            using q.name, coalesce(m.asked_to, -9223372036854775808) into m.asked_to;
    end if;
end
$$;

-- Locks the keys of at most n events, the oldest that nobody has and that wait for nothing.
--
-- It looks from from_id on, at about `walk` rows. Below m.low are keys that wait, or whose lock somebody had: a call that moves
-- the marks looks at all waits, and at the next stretch of ids there. next_id: the next look goes on here. more: there may be
-- more. left_from: all before were tried, or wait.
create function outbox.lock_keys(q outbox.queue, n int, from_id bigint, walk int, moves boolean, inout m outbox.take_mark,
    out keys text[], out keyless_ids bigint[], out expired boolean, out next_id bigint, out more boolean, out left_from bigint, out walked int)
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
    keys := '{}'; keyless_ids := '{}'; expired := false; walked := 0; next_id := from_id;
    if moves then
        sweep_to := least(coalesce(m.swept, 0)::numeric + m.sweep_span, below);
    end if;
    for pass in 1..6 loop
        execute format('select * from outbox.queue_%s_lock($1, $2, $3, $4, $5, 1000, $6, $7, $8, $9%s)', q.number,
                       case when q.priority_column is not null then ', $10, $11, $12, $13, $14' end)
            using n - cardinality(keys) - cardinality(keyless_ids), case when pass = 1 then 2 * n + 16 else 0 end, m.waits_from, rows, next_id,
                  case when moves and pass = 1 then coalesce(m.swept + 1, -9223372036854775808) end, sweep_to, keys, keyless_ids,
                  moves and pass = 1, m.top_priority, m.top_id, m.topped_priority, m.topped_id
            into look;
        if q.priority_column is not null then
            m.top_priority := look.top_priority;
            m.top_id := look.top_id;
            m.topped_priority := look.topped_priority;
            m.topped_id := look.topped_id;
        end if;
        keys := keys || look.found_keys;
        keyless_ids := keyless_ids || look.found_keyless;
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
        exit when not more or cardinality(keys) + cardinality(keyless_ids) >= n or walked >= walk;
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
    waits     boolean; -- heads may have to be skipped
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
    -- Heads that are not due, or come after others, are skipped, and others are looked for: ever more at a time, so that many that
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
                   and (p.keyless and p.event_id = any (locked.keyless_ids) or not p.keyless and p.key = any (locked.keys))
                 order by p.token
            loop
                if lost.ours is null and lost.keyless then
                    locked.keyless_ids := array_remove(locked.keyless_ids, lost.event_id);
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
            using locked.keys, locked.keyless_ids,
                  left(coalesce(take.worker, nullif(current_setting('application_name'), ''), session_user), 200), take.lease, free, (mark.m).due_to;
        get diagnostics got = row_count;
        had := cardinality(locked.keys) + cardinality(locked.keyless_ids);
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
