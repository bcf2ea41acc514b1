-- 004_wake: producers wake the relays that rest.
--
-- DESIGN. A relay that finds nothing for a while rests: it sends nothing until a producer wakes it by NOTIFY. NOTIFY is dear, because
-- each transaction that notifies takes one lock of the whole server at its commit: 32 clients made 839 inserts/s with it, 6,061 without. So
-- a producer notifies only while a relay rests, and asks for that by an advisory lock. A table would be no good place for the answer: a
-- producer may have an older snapshot, and a relay that crashes would leave its row there.
--
-- A relay that rests has two locks, shared, for its session: (-1818282541, the table's oid) and (1189806900, hashtext(queue)): FNV-1a of
-- "pgcourier:wake table" and of "pgcourier:wake queue". A trigger of the table tries the first one, exclusively, and lets it go again; the
-- triggers of what makes something due for a queue try the second one. Who does not get the lock notifies channel "pgcourier", with the
-- payload t<oid> or q<hash>. It tries three times, because another producer that asks at this moment has the lock, too.
--
-- Trying and letting go are one expression, so that no cancelled statement can leave the lock behind.
--
-- No event is missed: whoever inserts has the table's RowExclusiveLock before the trigger asks, and until its transaction ends. A relay takes
-- its locks first and then looks in pg_locks for those that have the table's. Whoever comes later finds the relay's locks. For whoever was
-- there before, the relay waits, and then it looks at the table a last time. tests/model/wake.pml has it.
--
-- What runs once an insert has no `set search_path`, as in 003_producers. The functions are "stable" so that plpgsql takes no snapshot
-- for the question, and the common answer costs 1.3 us.

-- The table's trigger, once a statement.
create function outbox.wake_by_statement() returns trigger
    language plpgsql stable
as $$
begin
    if (case when pg_catalog.pg_try_advisory_lock(-1818282541, tg_relid::pg_catalog.int4)
             then not pg_catalog.pg_advisory_unlock(-1818282541, tg_relid::pg_catalog.int4) else true end) then
        for again in 2 .. 3 loop
            if (case when pg_catalog.pg_try_advisory_lock(-1818282541, tg_relid::pg_catalog.int4)
                     then not pg_catalog.pg_advisory_unlock(-1818282541, tg_relid::pg_catalog.int4) else true end) is not true then
                return null;
            end if;
        end loop;
        perform pg_catalog.pg_notify('pgcourier', pg_catalog.concat('t', tg_relid));
    end if;
    return null;
end
$$;

-- The trigger of a partitioned table, once a row: triggers for statements do not fire for what is inserted right into a partition. Its
-- condition has asked once by then, for the table that it was made for: this one asks for each that has the row.
create function outbox.wake_by_row() returns trigger
    language plpgsql stable
as $$
declare
    root pg_catalog.regclass;
begin
    for root in select a.relid from pg_catalog.pg_partition_ancestors(tg_relid) a loop
        for again in 2 .. 3 loop
            if (case when pg_catalog.pg_try_advisory_lock(-1818282541, root::pg_catalog.oid::pg_catalog.int4)
                     then not pg_catalog.pg_advisory_unlock(-1818282541, root::pg_catalog.oid::pg_catalog.int4) else true end) is not true then
                exit;
            elsif again operator(pg_catalog.=) 3 then
                perform pg_catalog.pg_notify('pgcourier', pg_catalog.concat('t', root::pg_catalog.oid));
            end if;
        end loop;
    end loop;
    return null;
end
$$;

-- What is due for a queue has changed, and not by an insert into its table. The trigger's condition may have asked once by then.
create function outbox.wake_by_queue() returns trigger
    language plpgsql stable
as $$
declare
    hash pg_catalog.int4 := pg_catalog.hashtext(case when tg_op operator(pg_catalog.=) 'DELETE' then old.queue else new.queue end);
begin
    for again in 1 .. 3 loop
        if (case when pg_catalog.pg_try_advisory_lock(1189806900, hash)
                 then not pg_catalog.pg_advisory_unlock(1189806900, hash) else true end) is not true then
            return null;
        end if;
    end loop;
    perform pg_catalog.pg_notify('pgcourier', pg_catalog.concat('q', hash));
    return null;
end
$$;

-- Puts the trigger on a table, for INSERTs and UPDATEs there. Always, because the rows that a restore or another replication inserts
-- have to be delivered, too. Names of columns are not in it: it stays right when the table is renamed or restored.
--
-- Of a partitioned table each partition has it, also one that comes later. Its condition asks, because an executor evaluates that for a
-- tenth of what it takes to call a function, and the rows of one statement may be many.
create function outbox.install_wake(tbl regclass) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    kind "char" := (select c.relkind from pg_class c where c.oid = tbl);
    part regclass;
begin
    if kind is null or kind not in ('r', 'p') then
        raise exception 'install_wake: % is no table', coalesce(tbl::text, 'null')
            using errcode = 'wrong_object_type', hint = 'Give the table that a relay serves.';
    end if;
    perform outbox.uninstall_wake(tbl);
    if kind = 'r' then
        execute format('create trigger outbox_wake after insert or update on %s'
                       ' for each statement execute function outbox.wake_by_statement()', tbl);
    else
        execute format('create trigger outbox_wake after insert or update on %1$s for each row'
                       ' when (case when pg_try_advisory_lock(-1818282541, %1$L::regclass::oid::int4)'
                       '            then not pg_advisory_unlock(-1818282541, %1$L::regclass::oid::int4) else true end)'
                       ' execute function outbox.wake_by_row()', tbl);
    end if;
    for part in select tbl union select p.relid from pg_partition_tree(tbl) p loop -- before PostgreSQL 15 each is told by itself
        execute format('alter table %s enable always trigger outbox_wake', part);
    end loop;
end
$$;

create function outbox.uninstall_wake(tbl regclass) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (select from pg_trigger t where t.tgrelid = tbl and t.tgname = 'outbox_wake' and t.tgparentid = 0) then
        execute format('drop trigger outbox_wake on %s', tbl);
    end if;
end
$$;

select outbox.install_wake('outbox.events');

-- A trigger for what makes something due for a queue: once a row, where `condition` is true of it, new and old.
create function outbox.wake_on(tbl regclass, event text, condition text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format('create trigger outbox_wake_%s after %s on %s for each row'
                   ' when (case when (%s) is not true then false'
                   '            when pg_try_advisory_lock(1189806900, hashtext(%5$s.queue))'
                   '            then not pg_advisory_unlock(1189806900, hashtext(%5$s.queue)) else true end)'
                   ' execute function outbox.wake_by_queue()',
                   split_part(event, ' ', 1), event, tbl, condition, case event when 'delete' then 'old' else 'new' end);
end
$$;

-- An entry that is due at some time, or earlier than a relay that rests knows; and a key that is open again.
select outbox.wake_on('outbox.parked', 'insert', 'new.next_at < ''infinity''');
select outbox.wake_on('outbox.parked', 'update of next_at', 'new.next_at < old.next_at');
select outbox.wake_on('outbox.parked', 'delete', 'true');
-- A dead letter that is dropped is done for the events that wait for it.
select outbox.wake_on('outbox.dead', 'delete', 'true');
-- Those of paused and schedule are in 008_lifecycle and 014_schedules.

revoke all on function outbox.wake_by_statement(), outbox.wake_by_row(), outbox.wake_by_queue(), outbox.wake_on(regclass, text, text),
    outbox.install_wake(regclass), outbox.uninstall_wake(regclass) from public;
