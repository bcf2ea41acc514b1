-- 009_time: events that wait for their time, and events that come by the clock.
--
-- An event whose not_before is to come is known to the relays as a key that waits, with the entry in outbox.parked that a
-- failure leaves, but no attempt and no error: until it is due nobody looks at it. See batch_add_delayed() of relay/queue/batch.c.

-- What a clock in a zone shows.
create function outbox.clock_in(zone text, moment timestamptz, what text) returns timestamp
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not isfinite(moment) then
        raise exception '%: there is nothing after %', what, moment using errcode = 'invalid_parameter_value', hint = 'Give a date.';
    end if;
    return moment at time zone zone;
exception
    when invalid_parameter_value then
        if not isfinite(moment) then
            raise;
        end if;
        raise exception '%: there is no time zone %', what, quote_literal(zone)
            using errcode = 'invalid_parameter_value', hint = 'Give a name of pg_timezone_names, like Europe/Berlin.';
end
$$;

-- The next full hour, quarter of an hour, day, ...: so that what can wait for each other goes together. Weeks begin on Monday.
create function outbox.next_full(step interval, after timestamptz default clock_timestamp(), zone text default current_setting('timezone'))
    returns timestamptz
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    here   timestamp;
    next   timestamp;
    moment timestamptz := next_full.after;
begin
    if step is null or step not between '1 s' and '7 days' or extract(month from step) + extract(year from step) <> 0 then
        raise exception 'next_full: the step must be between a second and 7 days, not %', coalesce(step::text, 'null')
            using errcode = 'invalid_parameter_value', hint = 'Give an interval like ''1 hour''.';
    end if;
    if next_full.after is null or zone is null then
        raise exception 'next_full: after which time, and in which zone?' using errcode = 'null_value_not_allowed',
            hint = 'Leave both out for the next one from now on.';
    end if;
    here := outbox.clock_in(zone, moment, 'next_full');
    next := date_bin(step, here, timestamp '2001-01-01') + step;
    -- What comes twice in a night, when the clock is put back: each of two hours is one, and of two equal times of longer steps the
    -- first one is meant.
    if step <= '1 hour' then
        loop
            moment := moment + (next - here);
            here := moment at time zone zone;
            next := date_bin(step, here, timestamp '2001-01-01');
            exit when next = here; -- it is not where the clock was put back by half an hour
            next := next + step;
        end loop;
    else
        loop
            moment := outbox.first_moment(next, zone);
            exit when moment > next_full.after;
            next := next + step;
        end loop;
    end if;
    return moment;
end
$$;

-- For whoever has moved not_before of events that are known to wait, or has deleted one of them: each of the keys is looked
-- at again now, and what is not due waits again. Returns how many there were.
create function outbox.look_again(queue text, key text default null) returns bigint
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '5s'
as $$
declare
    entries bigint;
begin
    perform outbox.check_known('look_again', look_again.queue, false);
    perform outbox.check_key('look_again', look_again.queue, look_again.key);
    update outbox.parked p
       set next_at = now(), after_id = null, updated_at = now()
     where p.queue = look_again.queue and (look_again.key is null or p.key = look_again.key and not p.keyless)
       and p.attempts = 0 and p.last_error = '' and p.token is null and p.resume_at is null and p.next_at > now();
    get diagnostics entries = row_count;
    return entries;
end
$$;

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

-- The numbers that one field of a cron expression stands for, `what` for people; names[1] is `low`.
create function outbox.cron_field(expression text, what text, field text, low int, high int, names text[] default '{}') returns int[]
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
declare
    numbers int[] := '{}';
    part    text;
    m       text[];
    first   int;
    last    int;
    step    int;
begin
    foreach part in array string_to_array(field, ',') loop
        m := regexp_match(lower(part), '^(\*|([a-z]{3}|[0-9]{1,2})(-([a-z]{3}|[0-9]{1,2}))?)(/([0-9]{1,2}))?$');
        first := case when m[1] = '*' then low when m[2] ~ '[a-z]' then array_position(names, m[2]) - 1 + low else m[2]::int end;
        last := case when m[1] = '*' then high when m[4] ~ '[a-z]' then array_position(names, m[4]) - 1 + low else m[4]::int end;
        last := case when m[4] is null and m[1] <> '*' then case when m[6] is null then first else high end else last end;
        if last < first and m[4] ~ '[a-z]' and last + cardinality(names) <= high then -- a range to sun: the 7 of days, not the 0
            last := last + cardinality(names);
        end if;
        step := coalesce(m[6]::int, 1);
        if m[4] is not null and last < first and last >= low and first <= high then
            raise exception 'next_cron: the % "%" in "%" runs backwards', what, part, expression
                using errcode = 'invalid_parameter_value',
                      hint = format('Write %s-%s, or two ranges to go round: %s-%s,%s-%s.', m[4], m[2], m[2], high, low, m[4]);
        end if;
        if m is null or first is null or last is null or first < low or last > high or last < first or step < 1 then
            raise exception 'next_cron: the % "%" in "%" is no value from % to %', what, part, expression, low, high
                using errcode = 'invalid_parameter_value',
                      hint = 'A field is *, a number or name, a range 1-5, each with a step */15, or a list of these: 0,30.';
        end if;
        numbers := numbers || array(select generate_series(first, last, step));
    end loop;
    return numbers;
end
$$;

-- The first moment whose clock in `zone` shows this time; where the clock is put forward over it, the moment when it is.
create function outbox.first_moment(shown timestamp, zone text) returns timestamptz
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    around  timestamptz := shown at time zone zone;
    before  interval := (around - interval '1 day') at time zone zone - (around - interval '1 day') at time zone 'UTC';
    after   interval := (around + interval '1 day') at time zone zone - (around + interval '1 day') at time zone 'UTC';
    moment  timestamptz;
    low     timestamptz := around - interval '1 day';
    minutes int := 2880;
begin
    foreach moment in array array[least((shown - before) at time zone 'UTC', (shown - after) at time zone 'UTC'),
                                  greatest((shown - before) at time zone 'UTC', (shown - after) at time zone 'UTC')] loop
        if moment at time zone zone = shown then
            return moment;
        end if;
    end loop;
    while minutes > 1 loop -- the minute in which the clock changes is in (low, low + minutes]
        moment := low + minutes / 2 * interval '1 minute';
        if moment at time zone zone - moment at time zone 'UTC' = before then
            low := moment;
            minutes := minutes - minutes / 2;
        else
            minutes := minutes / 2;
        end if;
    end loop;
    return date_trunc('minute', low + interval '1 minute');
end
$$;

-- When a cron expression (minute, hour, day of the month, month, day of the week) comes true next after a moment.
--
-- Days: where both kinds of day are restricted, one of them suffices. When clocks change: with a * in the hour a run comes
-- at each moment that fits; without one a run comes once a day, at the first of two equal times, and when the clock jumps
-- over its time, at the jump.
create function outbox.next_cron(expression text, zone text default 'UTC', after timestamptz default clock_timestamp())
    returns timestamptz
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    plain  text := case lower(btrim(expression))
        when '@hourly' then '0 * * * *' when '@daily' then '0 0 * * *' when '@midnight' then '0 0 * * *'
        when '@weekly' then '0 0 * * 0' when '@monthly' then '0 0 1 * *'
        when '@yearly' then '0 0 1 1 *' when '@annually' then '0 0 1 1 *' else btrim(expression) end;
    fields text[] := regexp_split_to_array(plain, '\s+');
    minutes int[];
    hours   int[];
    days    int[];
    months  int[];
    weekdays int[];
    either  boolean;
    of_month boolean;
    of_week boolean;
    day     date;
    moment  timestamptz;
begin
    if plain is null or zone is null or next_cron.after is null then
        return null;
    end if;
    if cardinality(fields) <> 5 then
        raise exception 'next_cron: "%" has % fields, not 5', expression, cardinality(fields)
            using errcode = 'invalid_parameter_value',
                  hint = 'Write minute, hour, day of the month, month and day of the week: 30 6 * * mon-fri; or @hourly, @daily, @weekly, @monthly, @yearly.';
    end if;
    minutes := outbox.cron_field(expression, 'minute', fields[1], 0, 59);
    hours := outbox.cron_field(expression, 'hour', fields[2], 0, 23);
    days := outbox.cron_field(expression, 'day of the month', fields[3], 1, 31);
    months := outbox.cron_field(expression, 'month', fields[4], 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}');
    weekdays := outbox.cron_field(expression, 'day of the week', fields[5], 0, 7, '{sun,mon,tue,wed,thu,fri,sat}');
    either := fields[3] !~ '^\*' and fields[5] !~ '^\*';
    -- In a year with 29 February. Where days of the week would do without it, there is always one.
    if not either and not exists (select from unnest(months) m where (select min(d) from unnest(days) d)
                                                                     <= extract(day from make_date(2000, m, 1) + interval '1 month - 1 day')) then
        raise exception 'next_cron: "%" never comes true: no month of "%" has a day of the month of "%"', expression, fields[4], fields[3]
            using errcode = 'invalid_parameter_value', hint = 'Give a day that one of the months has, or * as the month.';
    end if;
    day := outbox.clock_in(zone, next_cron.after, 'next_cron')::date - 1; -- a clock that is put back over midnight shows the day before again
    for n in 0 .. 366 * 40 + 3 loop -- 29 February may be eight years away, and one of a certain day of the week 40
        of_month := extract(day from day) = any (days);
        of_week := extract(dow from day) = any (weekdays) or extract(isodow from day) = any (weekdays);
        if extract(month from day) = any (months) and (of_month and of_week or either and (of_month or of_week)) then
            if fields[2] ~ '^\*' then
                select min(s) into moment
                  from generate_series(greatest(outbox.first_moment(day::timestamp, zone), date_trunc('minute', next_cron.after) + interval '1 minute'),
                                       outbox.first_moment(day + interval '1 day', zone) - interval '1 minute', interval '1 minute') s
                 where extract(minute from s at time zone zone) = any (minutes) and extract(hour from s at time zone zone) = any (hours);
            else
                select min(m.moment) into moment
                  from unnest(hours) h, unnest(minutes) i,
                       lateral (select outbox.first_moment(day + make_interval(hours => h, mins => i), zone) as moment) m
                 where m.moment > next_cron.after;
            end if;
            if moment is not null then
                return moment;
            end if;
        end if;
        day := day + 1;
    end loop;
    raise exception 'next_cron: "%" never comes true', expression
        using errcode = 'invalid_parameter_value', hint = 'Does its clock ever show such a time?';
end
$$;

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
