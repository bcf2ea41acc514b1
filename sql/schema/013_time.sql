-- 013_time: events that wait for their time, and events that come by the clock.
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
