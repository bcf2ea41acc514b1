-- 007_lifecycle: queues and keys that are paused.

-- While a queue has a row here its relays claim nothing; they look twice a second. A key has one beside its entry in
-- outbox.parked, which is what keeps its events back.
create table outbox.paused (
    queue  text not null,
    key    text, -- as text; null: the whole queue
    since  timestamptz not null default clock_timestamp(),
    by     text not null default session_user,
    reason text not null default ''
);

create unique index paused_queue on outbox.paused (queue) where key is null;
create unique index paused_key on outbox.paused (queue, key) where key is not null;
create index paused_since on outbox.paused (queue, since) where key is not null;

create function outbox.is_paused(queue text) returns boolean
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select exists (select from outbox.paused p where p.queue = is_paused.queue and p.key is null)
$$;

-- A queue's name is one that a configuration may have; which there are only the relays know.
create function outbox.check_queue(what text, queue text) returns void
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if check_queue.queue is null or check_queue.queue !~ '^[A-Za-z][A-Za-z0-9_-]{0,62}$' then
        raise exception '%: % is not the name of a queue', what, coalesce(quote_literal(left(check_queue.queue, 80)), 'null')
            using errcode = 'invalid_parameter_value',
                  hint = 'A queue has the name that it has under "queues" in the relay''s configuration.';
    end if;
end
$$;

-- Stops a queue, or one key of it; false: it was paused already, and nothing is changed. Commit soon: until then the
-- relays know nothing of it, and of a paused key they can settle nothing.
--
-- A key need not wait for its events that are under way: it may be that its relay finds the new entry when it settles
-- them, and leaves it as it is (settle_park.sql, settle_unpark.sql). An entry that is made here points below all ids.
create function outbox.pause(queue text, key text default null, reason text default '') returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '5s'
as $$
#variable_conflict use_column
begin
    perform outbox.check_queue('pause', pause.queue);
    if char_length(pause.reason) > 1000 then
        raise exception 'pause: the reason has % characters', char_length(pause.reason)
            using errcode = 'string_data_right_truncation', hint = 'Say it in 1000 or less.';
    end if;
    insert into outbox.paused (queue, key, reason) values (pause.queue, pause.key, coalesce(pause.reason, ''))
        on conflict do nothing;
    if not found then
        return false;
    end if;
    if pause.key is not null then
        insert into outbox.parked as p (queue, key, event_id, next_at, resume_at)
        values (pause.queue, pause.key, -9223372036854775808, 'infinity', now())
            on conflict (queue, key) where not keyless do update
           set resume_at = p.next_at, next_at = 'infinity', updated_at = now();
    end if;
    perform pg_notify('pgcourier', pause.queue);
    return true;
end
$$;

-- Lets it go on; false: it was not paused. A key goes on where it was: with its wait, or closed.
create function outbox.resume(queue text, key text default null) returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '5s'
as $$
#variable_conflict use_column
begin
    perform outbox.check_queue('resume', resume.queue);
    if resume.key is null then
        delete from outbox.paused p where p.queue = resume.queue and p.key is null;
    else
        delete from outbox.paused p where p.queue = resume.queue and p.key = resume.key;
    end if;
    if not found then
        return false;
    end if;
    update outbox.parked p
       set next_at = p.resume_at, resume_at = null, updated_at = now()
     where p.queue = resume.queue and p.key = resume.key and not p.keyless and p.resume_at is not null;
    perform pg_notify('pgcourier', resume.queue);
    return true;
end
$$;

revoke all on function outbox.is_paused(text), outbox.check_queue(text, text), outbox.pause(text, text, text), outbox.resume(text, text)
    from public;
