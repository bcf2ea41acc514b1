-- 007_lifecycle: queues and keys that are paused, and how long what is done with is kept.

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

-- The queues that relays have served. Each notes its own when it starts, so that SQL knows the names and their tables, which are
-- in the relays' configurations alone. Of a queue that is no more, delete the row.
create table outbox.served (
    queue text primary key,
    tbl   regclass, -- null: not known
    since timestamptz not null default clock_timestamp()
);

create function outbox.note_served(queue text, tbl regclass default null) returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    insert into outbox.served as s (queue, tbl) values (note_served.queue, note_served.tbl)
        on conflict on constraint served_pkey do update set tbl = excluded.tbl where s.tbl is distinct from excluded.tbl
$$;

-- A name may be anything.
create function outbox.check_queue(what text, queue text) returns void
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if check_queue.queue is null or char_length(check_queue.queue) not between 1 and 200 then
        raise exception '%: % is not the name of a queue', what, coalesce(quote_literal(left(check_queue.queue, 80)), 'null')
            using errcode = 'invalid_parameter_value',
                  hint = 'Give the name that it has under "queues" in the relay''s configuration, or in outbox.queue.';
    end if;
end
$$;

-- Refuses a name that nothing here knows: a relay that served it, outbox.queue, or what is left of such a queue. With `is_new` it
-- may be that of a queue that nothing has served yet.
create function outbox.check_known(what text, queue text, is_new boolean) returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    replayed record;
    names    text;
begin
    perform outbox.check_queue(what, check_known.queue);
    select r.* into replayed from outbox.replay r
     where r.replay_id = substring(check_known.queue from '\(replay ([0-9]{1,18})\)$')::bigint
       and r.ended_at is null and check_known.queue = outbox.replay_name(r.queue, r.replay_id);
    if found then
        raise exception '%: % is no queue but a replay of queue %', what, quote_literal(check_known.queue), quote_literal(replayed.queue)
            using errcode = 'invalid_parameter_value',
                  hint = format('Give the queue, which the replay obeys. `pgcourier replay --resume %s` goes on with it, `--cancel %1$s` forgets it.',
                                replayed.replay_id);
    end if;
    if is_new or exists (select from outbox.served s where s.queue = check_known.queue)
       or exists (select from outbox.queue_names() n where n = check_known.queue) then
        return;
    end if;
    select string_agg(x.queue, ', ' order by x.queue) into names
      from (select s.queue from outbox.served s union select n from outbox.queue_names() n order by 1 limit 20) x;
    raise exception '%: there is no queue %', what, quote_literal(left(check_known.queue, 80))
        using errcode = 'undefined_object',
              hint = format('No relay has served it and outbox.queue does not have it. Those that are known: %s.%s', coalesce(names, 'none'),
                            case when what in ('pause', 'resume') then ' If it is a new one, add is_new => true.' else '' end);
end
$$;

-- A key is spelt as its column shows it, or nothing would ever be found under it. Of a queue that only a relay's configuration knows
-- this is not known; `pgcourier pause` knows it.
create function outbox.check_key(what text, queue text, key text) returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    kind text := (select q.key_type from outbox.queue q where q.name = check_key.queue);
begin
    if key is null or (case kind when 'none' then false
                                 when 'bigint' then key ~ '^(0|-?[1-9][0-9]{0,18})$' and key::numeric between -9223372036854775808 and 9223372036854775807
                                 when 'uuid' then key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' else true end) then
        return;
    end if;
    raise exception '%: % is no key of queue %', what, quote_literal(left(key, 80)), quote_literal(check_key.queue)
        using errcode = 'invalid_parameter_value',
              hint = case kind when 'none' then 'It has no key column.'
                               when 'bigint' then 'Write a number without leading zeros, spaces or a plus.'
                               else 'Write the uuid in lower case, with its hyphens.' end;
end
$$;

-- Stops a queue, or one key of it; false: it was paused already, and nothing is changed. Commit soon: until then the
-- relays know nothing of it, and of a paused key they can settle nothing. A key need have no events now.
--
-- A key need not wait for its events that are under way: it may be that its relay finds the new entry when it settles
-- them, and leaves it as it is (settle_park.sql, settle_unpark.sql). An entry that is made here points below all ids.
create function outbox.pause(queue text, key text default null, reason text default '', is_new boolean default false) returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '5s'
as $$
#variable_conflict use_column
begin
    perform outbox.check_known('pause', pause.queue, pause.is_new);
    perform outbox.check_key('pause', pause.queue, pause.key);
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
    return true;
end
$$;

-- Lets it go on; false: it was not paused. A key goes on where it was: with its wait, or closed.
create function outbox.resume(queue text, key text default null, is_new boolean default false) returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '5s'
as $$
#variable_conflict use_column
begin
    perform outbox.check_known('resume', resume.queue, resume.is_new);
    perform outbox.check_key('resume', resume.queue, resume.key);
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
    return true;
end
$$;

-- How long each queue's rows are to stay in the archive, in its relays' own words. The archive is one for all queues and
-- goes by the day, so a day stays until every queue here lets it go. Of a queue that is no more, delete the row.
create table outbox.archive_retention (
    queue   text primary key,
    keep    interval, -- null: for ever
    said_at timestamptz not null default clock_timestamp()
);

-- Notes how long a queue keeps its archive, and takes one step of removing what no queue keeps any more: a day's
-- partition is detached, or one that was detached before is dropped, or up to 10,000 rows go that are in the default
-- partition because their day had none. `removed` is what is gone for good; `again` is when to come back, null: there is
-- nothing left to do for now.
--
-- Settlements that archive need a lock on outbox.archive that DETACH excludes, and CONCURRENTLY is not to be had beside
-- a default partition. So detaching waits a tenth of a second for its turn at most, with everybody behind it, and is then
-- put off; and files are deleted by a step of its own, when the table is nobody's partition any more.
create function outbox.archive_expire(queue text, keep interval, out removed text, out again interval)
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
    set lock_timeout = '100ms'
as $$
#variable_conflict use_column
declare
    oldest timestamptz;
    part   text;
begin
    perform outbox.check_queue('archive_expire', archive_expire.queue);
    if archive_expire.keep < interval '1 hour' then
        raise exception 'archive_expire: % is too short to be meant', archive_expire.keep
            using errcode = 'invalid_parameter_value', hint = 'Give an hour or more, or null to keep everything.';
    end if;
    insert into outbox.archive_retention as r (queue, keep) values (archive_expire.queue, archive_expire.keep)
        on conflict (queue) do update set keep = excluded.keep, said_at = clock_timestamp()
     where r.keep is distinct from excluded.keep;
    select case when bool_and(r.keep is not null) then now() - max(r.keep) end into oldest from outbox.archive_retention r;
    -- A queue that only workers serve has no relay to speak for it.
    if oldest is null or exists (select from outbox.queue q where q.after = 'archive'
                                    and not exists (select from outbox.archive_retention r where r.queue = q.name)) then
        return;
    end if;
    again := '1 minute';
    -- The lock of archive_prepare(): one at a time, whoever it is.
    if not pg_try_advisory_xact_lock(662116619, 0) then
        return;
    end if;
    begin -- what is noted above stays, whatever becomes of this
        select c.relname into part from pg_class c
         where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = 'outbox')
           and c.relkind = 'r' and not c.relispartition and c.relname ~ '^archive_[0-9]{8}_expired$'
         order by c.relname limit 1;
        if found then
            execute format('drop table outbox.%I', part);
            removed := 'outbox.' || left(part, -8);
            again := '1 second';
            return;
        end if;
        delete from outbox.archive_default d
         where d.ctid = any (array(select o.ctid from outbox.archive_default o where o.archived_at < oldest limit 10000));
        if found then
            removed := 'rows of outbox.archive_default';
            again := '1 second';
            return;
        end if;
        select c.relname into part from pg_inherits i join pg_class c on c.oid = i.inhrelid
         where i.inhparent = 'outbox.archive'::regclass and c.relname ~ '^archive_[0-9]{8}$'
           and (to_date(substr(c.relname, 9), 'YYYYMMDD') + 1)::timestamptz <= oldest
         order by c.relname limit 1;
        if not found then
            again := null;
            return;
        end if;
        execute format('alter table outbox.archive detach partition outbox.%I', part);
        execute format('alter table outbox.%I rename to %I', part, part || '_expired');
        again := '1 second';
    exception
        when lock_not_available then
            removed := null;
            again := '1 minute';
    end;
exception
    when lock_not_available then -- another relay notes this queue's
        again := '1 minute';
end
$$;

revoke all on function outbox.archive_expire(text, interval) from public;

revoke all on function outbox.is_paused(text), outbox.check_queue(text, text), outbox.check_known(text, text, boolean),
    outbox.check_key(text, text, text), outbox.note_served(text, regclass), outbox.pause(text, text, text, boolean),
    outbox.resume(text, text, boolean) from public;
