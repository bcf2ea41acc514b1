-- 009_time: events that wait for their time.
--
-- An event whose not_before is to come is known to the relays as a key that waits, with the entry in outbox.parked that a
-- failure leaves, but no attempt and no error: until it is due nobody looks at it. See batch_add_delayed() of relay/batch.c.

-- The next full hour, quarter of an hour, day, ...: so that what can wait for each other goes together. Weeks begin on Monday.
create function outbox.next_full(step interval, after timestamptz default clock_timestamp(), zone text default current_setting('timezone'))
    returns timestamptz
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if step is null or step not between '1 s' and '7 days' or extract(month from step) + extract(year from step) <> 0 then
        raise exception 'next_full: the step must be between a second and 7 days, not %', coalesce(step::text, 'null')
            using errcode = 'invalid_parameter_value', hint = 'Give an interval like ''1 hour''.';
    end if;
    return (date_bin(step, next_full.after at time zone zone, timestamp '2001-01-01') + step) at time zone zone;
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
    perform outbox.check_queue('look_again', look_again.queue);
    update outbox.parked p
       set next_at = now(), updated_at = now()
     where p.queue = look_again.queue and (look_again.key is null or p.key = look_again.key and not p.keyless)
       and p.attempts = 0 and p.last_error = '' and p.token is null and p.resume_at is null and p.next_at > now();
    get diagnostics entries = row_count;
    return entries;
end
$$;

revoke all on function outbox.next_full(interval, timestamptz, text), outbox.look_again(text, text) from public;
