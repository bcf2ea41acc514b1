-- 014_schedules: events that are inserted by the clock. 013_time reads the expressions.

-- Events that are inserted again and again, by the clock:
--
--   select outbox.schedule_set('report', queue => 'tasks', cron => '30 6 * * mon-fri', zone => 'Europe/Berlin', type => 'report');
--   select outbox.schedule_set('poll', queue => 'tasks', every => '5 minutes', type => 'poll');
--
-- A relay of the queue inserts what is due, in the transaction that notes when the next run is: schedule_run().

create table outbox.schedule (
    name       text primary key check (name <> ''),
    queue      text not null,
    every      interval check (every between '1 s' and '366 days'),
    cron       text,
    zone       text not null,
    missed     text not null check (missed in ('skip', 'once', 'all')),
    key        text,
    type       text,
    payload    jsonb,
    headers    jsonb,
    next_at    timestamptz not null,
    last_at    timestamptz, -- the time that the last run was for
    runs       bigint not null default 0,
    retry_at   timestamptz, -- the last run could not be inserted; not before this again
    last_error text not null default '',
    check ((every is null) <> (cron is null))
);

create index schedule_next on outbox.schedule (queue, next_at);

-- What is due earlier than a relay that rests knows: see 004_wake.
select outbox.wake_on('outbox.schedule', 'insert', 'true');
select outbox.wake_on('outbox.schedule', 'update of queue, next_at, retry_at',
                      'new.queue <> old.queue or greatest(new.next_at, new.retry_at) < greatest(old.next_at, old.retry_at)');

-- The first run after a moment of a schedule that had one at next_at.
create function outbox.schedule_after(s outbox.schedule, moment timestamptz) returns timestamptz
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select case when s.cron is not null then outbox.next_cron(s.cron, s.zone, moment)
                else s.next_at + (floor(extract(epoch from moment - s.next_at) / extract(epoch from s.every)) + 1)
                                 * extract(epoch from s.every)::float8 * interval '1 s' end
$$;

-- Makes a schedule, or makes it anew. The event has what is given here; its headers say which schedule it is of.
create function outbox.schedule_set(
    name text, queue text, every interval default null, cron text default null, zone text default 'UTC',
    key text default null, type text default null, payload jsonb default null, headers jsonb default null,
    missed text default 'once', starts timestamptz default null)
    returns timestamptz
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '5s'
as $$
#variable_conflict use_variable
declare
    owner    constant regrole := (select n.nspowner from pg_namespace n where n.nspname = 'outbox');
    q        outbox.queue;
    s        outbox.schedule;
    without  text;
    deferred record;
    advice   text;
begin
    if name is null or char_length(name) not between 1 and 200 then
        raise exception 'schedule_set: a schedule has a name of 1 to 200 characters' using errcode = 'invalid_parameter_value', hint = 'Give one as name.';
    end if;
    select x.* into q from outbox.queue x where x.name = schedule_set.queue for key share; -- queue_drop() waits, and then finds it
    if not found then
        raise exception 'schedule_set: there is no queue %', coalesce(quote_literal(queue), 'null')
            using errcode = 'undefined_object', hint = format('Make it known: select outbox.queue_set(%L);', coalesce(queue, 'tasks'));
    end if;
    if (every is null) = (cron is null) then
        raise exception 'schedule_set: a schedule has either "every" or "cron"'
            using errcode = 'invalid_parameter_value', hint = 'every => ''5 minutes'', or cron => ''30 6 * * mon-fri''.';
    end if;
    if every not between '1 s' and '366 days' or extract(month from every) + extract(year from every) <> 0 then
        raise exception 'schedule_set: "every" is from a second to 366 days, not %', every
            using errcode = 'invalid_parameter_value', hint = 'For months there is cron => ''0 6 1 * *''.';
    end if;
    if missed is null or missed not in ('skip', 'once', 'all') then
        raise exception 'schedule_set: missed runs are for "skip", "once" or "all", not %', coalesce(quote_literal(missed), 'null')
            using errcode = 'invalid_parameter_value', hint = 'missed => ''once''.';
    end if;
    if jsonb_typeof(headers) <> 'object' then
        raise exception 'schedule_set: headers are a JSON object, not %', left(headers::text, 80)
            using errcode = 'invalid_parameter_value', hint = 'headers => ''{"name": "value"}''.';
    end if;
    if not isfinite(starts) then
        raise exception 'schedule_set: it never starts' using errcode = 'invalid_parameter_value', hint = 'Give a date as starts, or leave it out.';
    end if;
    if zone is null or not exists (select from pg_timezone_names z where z.name = schedule_set.zone) then
        raise exception 'schedule_set: there is no time zone %', coalesce(quote_literal(zone), 'null')
            using errcode = 'invalid_parameter_value', hint = 'Give a name of pg_timezone_names, like Europe/Berlin.';
    end if;
    select string_agg(x.what, ', ') into without
      from (values ('key', key is not null and q.key_column is null), ('type', type is not null and q.type_column is null),
                   ('payload', payload is not null and q.payload_column is null),
                   ('headers', headers is not null and q.headers_column is null)) x (what, lacks) where x.lacks;
    if without is not null then
        raise exception 'schedule_set: queue % has no column for: %', quote_literal(queue), without
            using errcode = 'invalid_parameter_value', hint = 'Map it with outbox.queue_set(), or leave it out.';
    end if;
    s.next_at := clock_timestamp(); s.every := every; s.cron := cron; s.zone := zone;
    begin
        s.next_at := case when starts is null or cron is not null
                          then outbox.schedule_after(s, greatest(starts - interval '1 microsecond', clock_timestamp())) else starts end;
    exception
        when invalid_parameter_value then
            get stacked diagnostics advice = pg_exception_hint;
            raise exception 'schedule_set: %', regexp_replace(sqlerrm, '^next_cron: ', '') using errcode = sqlstate, hint = advice;
    end;
    s.name := name; s.key := key; s.type := type; s.payload := payload; s.headers := headers;
    if not has_any_column_privilege(owner, q.tbl, 'insert') then
        raise exception 'schedule_set: schedules have the rights of %, who may not insert into %', owner, q.tbl
            using errcode = 'insufficient_privilege', hint = format('grant insert on %s to %s;', q.tbl, owner);
    end if;
    deferred := outbox.deferred_constraints(array[q.tbl]);
    begin
        perform outbox.schedule_insert(s, q, s.next_at);
        perform outbox.look_at_constraints(deferred.now, deferred.again);
        raise sqlstate 'PC000'; -- it was to be tried only
    exception
        when sqlstate 'PC000' or unique_violation or exclusion_violation then
            null; -- another that is there now may be gone when it runs
        when others then
            raise exception 'schedule_set: an event of % does not go into %: %', quote_ident(name), q.tbl, sqlerrm
                using errcode = sqlstate,
                      hint = case when sqlstate = '42501' then format('Grant that to %s.', current_user)
                                  else 'Give what its columns need as key, type, payload and headers.' end;
    end;
    insert into outbox.schedule as o (name, queue, every, cron, zone, missed, key, type, payload, headers, next_at)
    values (name, queue, every, cron, zone, missed, key, type, payload, headers, s.next_at)
        on conflict on constraint schedule_pkey do update
       set queue = excluded.queue, every = excluded.every, cron = excluded.cron, zone = excluded.zone, missed = excluded.missed,
           key = excluded.key, type = excluded.type, payload = excluded.payload, headers = excluded.headers, next_at = excluded.next_at,
           retry_at = null, last_error = '';
    return s.next_at;
end
$$;

create function outbox.schedule_drop(name text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    delete from outbox.schedule s where s.name = schedule_drop.name;
    if not found then
        raise exception 'schedule_drop: there is no schedule %', coalesce(quote_literal(left(schedule_drop.name, 80)), 'null')
            using errcode = 'undefined_object',
                  hint = coalesce('There are: ' || (select string_agg(x.name, ', ' order by x.name)
                                                      from (select s.name from outbox.schedule s order by 1 limit 20) x) || '.', 'There is none.');
    end if;
end
$$;

-- One event of a schedule, for its run at a certain time.
create function outbox.schedule_insert(s outbox.schedule, q outbox.queue, at timestamptz) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    names  text;
    texts  text;
    headers jsonb := jsonb_build_object('schedule', s.name, 'scheduled-at', to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
                     || coalesce(s.headers, '{}');
begin
    select string_agg(quote_ident(c.name), ', '), string_agg(quote_nullable(c.value), ', ') into names, texts
      from (values (q.key_column, s.key), (q.type_column, s.type), (q.payload_column, s.payload::text), (q.headers_column, headers::text)) c (name, value)
     where c.name is not null and c.value is not null;
    execute format(case when names is null then 'insert into %s default values' else 'insert into %s (%s) values (%s)' end, q.tbl, names, texts);
end
$$;

-- Inserts what is due of a queue's schedules, a bounded number: whoever has locked a schedule's row does it, and in the same
-- transaction the next run is noted. One that cannot be inserted is tried again after a minute, and the others go on; one whose
-- key a producer has locked, after a second. The connection has other work: only the first of them is waited for long, and all
-- of them together no longer than the caller's lock_timeout says.
-- `skip` leaves out what is late by more than a minute; `once` makes one event of all that is due.
create function outbox.schedule_run(queue text, out inserted bigint, out failed text, out more boolean)
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    given constant text := current_setting('lock_timeout');
    total constant interval := nullif(given::interval, interval '0');
    until constant timestamptz := clock_timestamp();
    q     outbox.queue := (select x from outbox.queue x where x.name = schedule_run.queue);
    s     outbox.schedule;
    deferred record;
    count int;
    at_most constant int := 20;
    taken int := 0;
    busy  boolean := false;
begin
    inserted := 0;
    more := false;
    for s in select x.* from outbox.schedule x
              where x.queue = schedule_run.queue and x.next_at <= until and coalesce(x.retry_at, until) <= until
              order by x.next_at limit at_most for update skip locked
    loop
        taken := taken + 1;
        if busy and clock_timestamp() > until + total then
            more := true;
            exit;
        end if;
        if deferred is null then
            deferred := outbox.deferred_constraints(array[q.tbl]);
        end if;
        perform outbox.wait_at_most(given, case when busy or s.retry_at is not null then interval '200 ms' else interval '1 s' end);
        begin
            if q.name is null then
                raise exception 'there is no queue % any more: make it known by outbox.queue_set(%), or drop the schedule by outbox.schedule_drop(%)',
                                quote_literal(s.queue), quote_literal(s.queue), quote_literal(s.name);
            end if;
            count := 0;
            if s.missed = 'skip' and s.retry_at is null then -- one that failed was not missed
                s.next_at := outbox.schedule_after(s, greatest(s.next_at, until - interval '1 minute') - interval '1 microsecond');
            end if;
            while s.next_at <= until and count < case when s.missed = 'all' then 100 else 1 end loop
                if s.key is not null then
                    perform pg_advisory_xact_lock(525316013, hashtext(s.key)); -- the producers' lock, as publish() takes it; the id comes after
                end if;
                perform outbox.schedule_insert(s, q, s.next_at);
                count := count + 1;
                s.last_at := s.next_at;
                s.next_at := outbox.schedule_after(s, case when s.missed = 'all' then s.next_at else until end);
            end loop;
            perform outbox.look_at_constraints(deferred.now, deferred.again); -- at the end it would take all of them with it
            update outbox.schedule x
               set next_at = s.next_at, last_at = s.last_at, runs = x.runs + count, retry_at = null, last_error = ''
             where x.name = s.name;
            inserted := inserted + count;
            more := more or s.next_at <= until;
        exception
            when lock_not_available or deadlock_detected then
                busy := true;
                update outbox.schedule x set retry_at = clock_timestamp() + interval '1 second' where x.name = s.name;
            when others then
                failed := format('%s: %s', s.name, sqlerrm);
                update outbox.schedule x set retry_at = until + interval '1 minute', last_error = left(sqlerrm, 1000) where x.name = s.name;
        end;
    end loop;
    if q.name is null and not exists (select from outbox.schedule x where x.queue = schedule_run.queue) then
        perform outbox.check_known('schedule_run', schedule_run.queue, false);
    end if;
    more := more or taken = at_most; -- those after them, whatever became of these
    perform set_config('lock_timeout', given, true);
end
$$;

revoke all on all functions in schema outbox from public;
