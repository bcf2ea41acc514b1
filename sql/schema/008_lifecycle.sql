-- 008_lifecycle: queues and keys that are paused, and how long what is done with is kept.

-- include state/state_paused.sql

-- A relay that rests knows nothing of a pause, or of its end, before it wakes: see 004_wake.
select outbox.wake_on('outbox.paused', 'insert', 'true');
select outbox.wake_on('outbox.paused', 'delete', 'true');

-- For people: a name that nothing knows is refused. take() and the relays look into the table.
create function outbox.is_paused(queue text) returns boolean
    language plpgsql stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (select from outbox.paused p where p.queue = is_paused.queue and p.key is null) then
        return true;
    end if;
    perform outbox.check_known('is_paused', is_paused.queue, false);
    return false;
end
$$;

-- The queues that relays have served. Each notes its own when it starts, so that SQL knows the names and their tables, which are
-- in the relays' configurations alone. Of a queue that is no more, delete the row.
create table outbox.served (
    queue      text primary key,
    tbl        regclass, -- null: not known
    lock_class int,      -- null: not known
    key_type   text check (key_type in ('none', 'bigint', 'text', 'uuid')), -- null: not known
    columns    jsonb, -- the names of its id, key and created_at; null: not known, or not all rows of the table are its own
    since      timestamptz not null default clock_timestamp()
);

-- Refuses what the session's user could not serve: a relay's login would otherwise hear by the answers of tables that it may not read.
create function outbox.check_served(tbl regclass) returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if (select c.relkind from pg_class c where c.oid = tbl) not in ('r', 'p') then
        raise exception 'note_served: % is no table', tbl using errcode = 'wrong_object_type', hint = 'Give the table behind it.';
    end if;
    -- Not the user's own rights alone: it may have them by SET ROLE.
    if tbl is not null and not exists (select from pg_roles r
                                        where pg_has_role(session_user, r.oid, 'member')
                                          and has_table_privilege(r.oid, tbl, 'select') and has_table_privilege(r.oid, tbl, 'delete')) then
        raise exception 'note_served: % may not select and delete in %', session_user, tbl
            using errcode = 'insufficient_privilege', hint = format('grant select, delete on %s to %I;', tbl, session_user);
    end if;
end
$$;

create function outbox.note_served(queue text, tbl regclass default null, lock_class int default null, key_type text default null,
    columns jsonb default null) returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select outbox.check_served(note_served.tbl);
    insert into outbox.served as s (queue, tbl, lock_class, key_type, columns)
    values (note_served.queue, note_served.tbl, note_served.lock_class, note_served.key_type, note_served.columns)
        on conflict on constraint served_pkey do update
       set tbl = excluded.tbl, lock_class = excluded.lock_class, key_type = excluded.key_type, columns = excluded.columns
     where (s.tbl, s.lock_class, s.key_type, s.columns)
           is distinct from (excluded.tbl, excluded.lock_class, excluded.key_type, excluded.columns)
$$;

-- Two relays that serve a table by different classes of locks do not keep out of each other's way: each delivers everything. So a
-- relay shows what it serves, by a lock of its session (sql/serving/serving_hold.sql), and does not serve beside another class. Behind a
-- pooler no session is its own: there it says so here, and goes on saying it while it lives.
create table outbox.serving (
    tbl        oid not null,
    lock_class int not null,
    queue      text not null,
    relay      text not null, -- its machine and process, in its own words
    by         text not null default session_user,
    live_until timestamptz not null,
    primary key (tbl, lock_class)
);

-- Who serves rows of a table by another class of locks; no row: nobody.
create function outbox.serves_otherwise(tbl oid, lock_class int)
    returns table (who text, other_tbl oid, other_class int, said boolean)
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select o.who, o.tbl, o.class, o.said
      from (select concat(coalesce(nullif(a.application_name, ''), 'a session'), ', pid ', l.pid::text) as who, l.classid as tbl,
                   (l.objid::bigint - case when l.objid::bigint > 2147483647 then 4294967296 else 0 end)::int as class, false as said
              from pg_locks l left join pg_stat_activity a on a.pid = l.pid
             where l.locktype = 'advisory' and l.objsubid = 1 and l.mode = 'ShareLock' and l.granted
               and l.database = (select d.oid from pg_database d where d.datname = current_database())
            union all
            select format('%s of %s behind a pooler (queue %s; until %s at least)', s.relay, s.by, s.queue,
                          to_char(s.live_until at time zone 'UTC', 'HH24:MI:SS"Z"')), s.tbl, s.lock_class, true
              from outbox.serving s where s.live_until > clock_timestamp()) o
     where o.class <> serves_otherwise.lock_class
       and exists (select * from outbox.parts_of(o.tbl) intersect select * from outbox.parts_of(serves_otherwise.tbl))
     order by o.tbl <> serves_otherwise.tbl, o.who
     limit 1
$$;

-- A relay serves a table by a class of locks; `refusal` is who does so by another, null: nobody. If the relay is behind a pooler that
-- counts for a minute and a half.
create function outbox.note_serving(queue text, tbl oid, lock_class int, relay text, pooled boolean, out refusal text, out other_tbl oid,
                                    out other_class int, out said boolean)
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    if pooled and not has_table_privilege(session_user, note_serving.tbl, 'delete')
       and (to_regrole('outbox_operator') is null or not pg_has_role(session_user, 'outbox_operator', 'member')) then -- who replays
        raise exception 'note_serving: % may not delete from %', quote_ident(session_user), note_serving.tbl::regclass
            using errcode = 'insufficient_privilege', hint = 'Who cannot serve a table cannot keep others from it: see outbox.grant_relay().';
    end if;
    select o.* into refusal, other_tbl, other_class, said from outbox.serves_otherwise(note_serving.tbl, note_serving.lock_class) o;
    if refusal is null and pooled then
        insert into outbox.serving as s (tbl, lock_class, queue, relay, live_until)
        values (note_serving.tbl, note_serving.lock_class, left(note_serving.queue, 200), left(note_serving.relay, 200), clock_timestamp() + interval '90 s')
            on conflict on constraint serving_pkey do update
           set queue = excluded.queue, relay = excluded.relay, by = excluded.by, live_until = excluded.live_until;
    end if;
end
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
    if is_new or exists (select from outbox.queue_names() n where n = check_known.queue) then
        return;
    end if;
    select string_agg(x.queue, ', ' order by x.queue) into names
      from (select n as queue from outbox.queue_names() n order by 1 limit 20) x;
    raise exception '%: there is no queue %', what, quote_literal(left(check_known.queue, 80))
        using errcode = 'undefined_object',
              hint = format('No relay has served it and outbox.queue does not have it. Those that are known: %s.%s', coalesce(names, 'none'),
                            case when what in ('pause', 'resume', 'archive_expire') then ' If it is a new one, add is_new => true.' else '' end);
end
$$;

-- A key is spelt as its column shows it, or nothing would ever be found under it.
create function outbox.check_key(what text, queue text, key text) returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    kind text := coalesce((select q.key_type from outbox.queue q where q.name = check_key.queue),
                          (select s.key_type from outbox.served s where s.queue = check_key.queue));
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

-- How many keys and events of a queue, or whether this key of it, relays and workers have. Of a table that several queues share the
-- relays' keys of all of them. Once a pause is committed no claim sends anything that is not found here, as each looks
-- for the pause when it has its locks; a lease is committed before its claim's lock goes, so leases are counted second, with
-- a snapshot of their own: the function is volatile.
create function outbox.in_flight(queue text, key text default null) returns bigint
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    class int;
    kind  text;
    hash  bigint;
    locks bigint;
begin
    perform outbox.check_isolation('in_flight');
    perform outbox.check_known('in_flight', in_flight.queue, false);
    perform outbox.check_key('in_flight', in_flight.queue, in_flight.key);
    select coalesce(q.lock_class, s.lock_class), coalesce(q.key_type, s.key_type) into class, kind
      from (select) one
      left join outbox.queue q on q.name = in_flight.queue
      left join outbox.served s on s.queue = in_flight.queue;
    if class is null then
        raise exception 'in_flight: nothing here says which locks the relays of queue % take', quote_literal(in_flight.queue)
            using errcode = 'object_not_in_prerequisite_state', hint = 'A relay notes it in outbox.served when it starts; `pgcourier drain` has it from its configuration.';
    end if;
    hash := case when in_flight.key is not null then outbox.lock_hash(kind, in_flight.key, null) end;
    select count(*) into locks from pg_locks l
     where l.locktype = 'advisory' and l.objsubid = 2 and l.granted and l.classid::bigint = class::bigint & 4294967295
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and (hash is null or l.objid::bigint = hash & 4294967295);
    return locks + (select count(*) from outbox.parked p
                     where p.queue = in_flight.queue and p.token is not null and coalesce(p.resume_at, p.next_at) > clock_timestamp()
                       and (in_flight.key is null or p.key = in_flight.key and not p.keyless));
end
$$;

-- Pauses a queue, or one key of it, and waits until nothing of it is on its way: `call outbox.drain('orders')`, in no transaction, as
-- the pause has to be committed first. It stays paused, also when the time is over. A procedure that commits has the rights and
-- the search_path of its caller: every name is qualified.
create procedure outbox.drain(queue text, key text default null, timeout interval default '30 s', reason text default 'drain')
    language plpgsql
as $$
declare
    by_then constant timestamptz := pg_catalog.clock_timestamp() operator(pg_catalog.+) timeout;
    left_over bigint;
    said      pg_catalog.text;
    advice    pg_catalog.text;
begin
    -- COMMIT would be refused below, without a word of what to do, and no handler may stand around one. What began before its statement
    -- is a transaction of the caller's, but for a statement that came in parts (extended protocol), which pg_cursors shows; after a
    -- COMMIT in a procedure it is younger.
    if pg_catalog.now() operator(pg_catalog.<) pg_catalog.statement_timestamp() and not exists (select from pg_catalog.pg_cursors) then
        raise exception 'drain: in a transaction it cannot commit the pause, of which relays would hear nothing'
            using errcode = 'invalid_transaction_termination',
                  hint = 'Call it with no transaction open, with autocommit on; or call outbox.pause(), commit, and ask outbox.in_flight() until it is 0.';
    end if;
    if pg_catalog.isfinite(timeout) is not true or timeout operator(pg_catalog.<) interval '0' then
        raise exception 'drain: % is no time to wait', coalesce(timeout::pg_catalog.text, 'null')
            using errcode = 'invalid_parameter_value', hint = 'Give an interval like ''30 s''.';
    end if;
    begin
        perform outbox.in_flight(queue, key); -- refuses what cannot be counted before anything is paused
        perform outbox.pause(queue, key, reason);
    exception
        when others then
            get stacked diagnostics said = message_text, advice = pg_exception_hint;
            if not pg_catalog.starts_with(said, 'in_flight: ') and not pg_catalog.starts_with(said, 'pause: ') then
                raise;
            end if;
            raise exception '%', pg_catalog.regexp_replace(said, '^[a-z_]+', 'drain') using errcode = sqlstate, hint = advice;
    end;
    commit;
    loop
        left_over := outbox.in_flight(queue, key);
        exit when left_over operator(pg_catalog.=) 0;
        if pg_catalog.clock_timestamp() operator(pg_catalog.>) by_then then
            raise exception 'drain: queue % is paused, and % still on the way after %', pg_catalog.quote_literal(queue),
                            case when left_over operator(pg_catalog.=) 1 then '1 key is' else left_over::pg_catalog.text operator(pg_catalog.||) ' keys are' end, timeout
                using errcode = 'lock_not_available', hint = 'Call it again to wait on; outbox.workers shows who has them; outbox.resume() lets the queue go on.';
        end if;
        perform pg_catalog.pg_sleep(0.05);
        commit;
    end loop;
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
--
-- A name that nothing knows is refused, with is_new not: a queue that keeps all would keep the archive of all. Relays say it for
-- theirs, whose names may not have been noted.
create function outbox.archive_expire(queue text, keep interval, is_new boolean default false, out removed text, out again interval)
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
    perform outbox.check_known('archive_expire', archive_expire.queue, archive_expire.is_new);
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

revoke all on function outbox.archive_expire(text, interval, boolean) from public;

revoke all on function outbox.is_paused(text), outbox.check_served(regclass), outbox.check_queue(text, text), outbox.check_known(text, text, boolean),
    outbox.check_key(text, text, text), outbox.note_served(text, regclass, int, text, jsonb), outbox.pause(text, text, text, boolean),
    outbox.resume(text, text, boolean), outbox.in_flight(text, text), outbox.serves_otherwise(oid, int),
    outbox.note_serving(text, oid, int, text, boolean) from public;
revoke all on procedure outbox.drain(text, text, interval, text) from public;
