-- 017_roles: five group roles, each with what it needs and no more. Grant them to login roles:
--   grant outbox_writer to shop;  grant outbox_relay to pgcourier;  grant outbox_monitor to grafana;
--
--   outbox_writer   inserts events
--   outbox_relay    reads and deletes events, keeps parked, dead and archive, pauses and resumes. `dead retry` puts an
--                   event back, so whoever runs that is a member of outbox_writer too (for another table: has INSERT
--                   on it).
--   outbox_worker   takes events from every queue in outbox.queue and says what became of them, by functions alone
--   outbox_monitor  reads the status views, the answers, what is paused and what is sent again
--   outbox_operator sends archived and dead events again: by functions that choose them, and then as a relay does

-- Roles belong to the whole server: another database, or another migration at this moment, may have made them already.
create function outbox.create_roles() returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    role    name;
    missing text[] := '{}';
begin
    foreach role in array array['outbox_writer', 'outbox_relay', 'outbox_worker', 'outbox_monitor', 'outbox_operator']::name[] loop
        continue when exists (select from pg_roles r where r.rolname = role);
        begin
            execute format('create role %I nologin', role);
        exception
            when duplicate_object or unique_violation then
                null;
            when insufficient_privilege then
                missing := missing || format('create role %I nologin;', role);
        end;
    end loop;
    if missing <> '{}' then
        raise notice 'the group roles were not made: % may not create roles. Have an administrator run: % '
                     'Then, as %: select outbox.grant_roles();',
                     current_user, array_to_string(missing, ' '), current_user;
    end if;
end
$$;

-- Gives the roles that exist their rights; may be run again at any time.
create function outbox.grant_roles() returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if to_regrole('outbox_writer') is not null then
        grant usage on schema outbox to outbox_writer;
        -- publish() returns the id, and RETURNING asks for SELECT on it.
        grant insert, select (id) on outbox.events to outbox_writer;
        -- For the ordering trigger.
        grant usage on sequence outbox.events_id_seq to outbox_writer;
        grant execute on function outbox.publish(text, text, jsonb, text, jsonb, text, timestamptz, text, text),
            outbox.publish_once(text, text, jsonb, text, jsonb, text, timestamptz, text, text), outbox.next_full(interval, timestamptz, text),
            outbox.look_again(text, text) to outbox_writer;
    end if;
    if to_regrole('outbox_relay') is not null then
        grant usage on schema outbox to outbox_relay;
        grant select, delete on outbox.events to outbox_relay;
        grant select on sequence outbox.events_id_seq to outbox_relay;
        grant select, insert, update, delete on outbox.parked to outbox_relay;
        grant select, insert, delete on outbox.dead to outbox_relay;
        grant insert on outbox.archive to outbox_relay;
        grant select on outbox.schema_version, outbox.queue, outbox.status_parked, outbox.status_closed, outbox.status_dead, outbox.status_events
            to outbox_relay;
        grant execute on function outbox.archive_prepare(int), outbox.archive_expire(text, interval, boolean) to outbox_relay;
        grant select on outbox.paused, outbox.schedule to outbox_relay;
        grant execute on function outbox.is_paused(text), outbox.note_served(text, regclass, int, text, jsonb), outbox.pause(text, text, text, boolean),
            outbox.resume(text, text, boolean), outbox.in_flight(text, text), outbox.look_again(text, text), outbox.schedule_run(text),
            outbox.note_serving(text, oid, int, text, boolean) to outbox_relay;
        grant select (queue, tbl, lock_class) on outbox.served to outbox_relay;
        grant execute on procedure outbox.drain(text, text, interval, text) to outbox_relay;
        grant select on outbox.failures to outbox_relay;
        grant execute on function outbox.sample_of(regclass[]), outbox.queue_names() to outbox_relay;
    end if;
    if to_regrole('outbox_worker') is not null then
        grant usage on schema outbox to outbox_worker;
        grant execute on function outbox.take(text, int, text, interval), outbox.done(uuid, text), outbox.done_all(uuid[], text[]),
            outbox.fail(uuid, text, boolean), outbox.extend(uuid, interval), outbox.release(uuid) to outbox_worker;
    end if;
    if to_regrole('outbox_monitor') is not null then
        grant usage on schema outbox to outbox_monitor;
        grant select on outbox.status_parked, outbox.status_closed, outbox.status_dead, outbox.status_events, outbox.status_leases,
            outbox.status_late_verdicts, outbox.paused, outbox.schedule, outbox.replay to outbox_monitor;
        -- A view has its owner's rights on tables, and its reader's on functions.
        grant select on outbox.overview, outbox.failures, outbox.stuck, outbox.by_hour, outbox.workers to outbox_monitor;
        grant execute on function outbox.overview_rows(), outbox.queue_names(), outbox.sample_of(regclass[]), outbox.archive_lately(),
            outbox.waits_for_itself(text, bigint, bigint) to outbox_monitor;
    end if;
    if to_regrole('outbox_operator') is not null then
        grant usage on schema outbox to outbox_operator;
        grant select on outbox.replay to outbox_operator;
        -- As a relay of the replay's own table.
        grant select, insert, update, delete on outbox.parked to outbox_operator;
        grant insert, select (dead_id) on outbox.dead to outbox_operator;
        grant select on outbox.paused, outbox.schedule, outbox.queue to outbox_operator;
        grant execute on function outbox.replay(text, text, bigint[], text, text, timestamptz, timestamptz, text, text, int, boolean, jsonb),
            outbox.replay_begin(bigint), outbox.replay_lock(bigint), outbox.replay_end(bigint),
            outbox.note_serving(text, oid, int, text, boolean) to outbox_operator;
        grant select (queue, tbl, lock_class) on outbox.served to outbox_operator;
    end if;
end
$$;

-- Lets a role serve an existing table: select outbox.grant_relay('public.events');
create function outbox.grant_relay(tbl regclass, role_name name default 'outbox_relay') returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    schema_name name;
    sequence    regclass;
begin
    if to_regrole(quote_ident(role_name)) is null then
        raise exception 'grant_relay: there is no role %', coalesce(quote_ident(role_name), 'null')
            using errcode = 'undefined_object',
                  hint = format('Have an administrator run: create role %I nologin; or give the name of one that there is.', coalesce(role_name, 'outbox_relay'));
    end if;
    select n.nspname into schema_name
      from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = tbl;
    if not has_schema_privilege(role_name, schema_name, 'USAGE') then
        execute format('grant usage on schema %I to %I', schema_name, role_name);
    end if;
    execute format('grant select, delete on table %s to %I', tbl, role_name);
    for sequence in
        select distinct s from pg_attribute a, outbox.sequence_of(tbl, a.attname) s
         where a.attrelid = tbl and a.attnum > 0 and not a.attisdropped and s is not null
    loop
        execute format('grant select on sequence %s to %I', sequence, role_name);
    end loop;
end
$$;

revoke all on function outbox.create_roles(), outbox.grant_roles(), outbox.grant_relay(regclass, name) from public;

select outbox.create_roles();
select outbox.grant_roles();
