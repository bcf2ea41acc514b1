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
-- A trigger's condition asks the first time, because the executor evaluates that for half of what it takes to call a function: 14 us an
-- insert, where a function that asked took 28 (32 clients on two processors, whose caches are cold), and 0.4 us for each row of a
-- statement. The functions have no `set search_path`, as in 003_producers, and are "stable" so that plpgsql takes no snapshot.

-- SQL that is true when a relay may rest, or another producer asks.
create function outbox.rests_sql(class int, number text) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $$
    select format('(case when pg_try_advisory_lock(%1$s, %2$s) then not pg_advisory_unlock(%1$s, %2$s) else true end)', class, number)
$$;

-- For the table's trigger, once a statement.
create function outbox.wake_by_statement() returns trigger
    language plpgsql stable
as $$
begin
    for again in 2 .. 3 loop
        if (case when pg_catalog.pg_try_advisory_lock(-1818282541, tg_relid::pg_catalog.int4)
                 then not pg_catalog.pg_advisory_unlock(-1818282541, tg_relid::pg_catalog.int4) else true end) is not true then
            return null;
        end if;
    end loop;
    perform pg_catalog.pg_notify('pgcourier', pg_catalog.concat('t', tg_relid));
    return null;
end
$$;

-- For the trigger of a partitioned table, once a row: triggers for statements do not fire for what is inserted right into a partition.
-- The row may be of several tables: each is asked for.
create function outbox.wake_by_row() returns trigger
    language plpgsql stable
as $$
declare
    root pg_catalog.regclass;
begin
    for root in select a.relid from pg_catalog.pg_partition_ancestors(tg_relid) a loop
        for again in 2 .. 3 loop
            if (case when pg_catalog.pg_try_advisory_lock(-1818282541, root::pg_catalog.int4)
                     then not pg_catalog.pg_advisory_unlock(-1818282541, root::pg_catalog.int4) else true end) is not true then
                exit;
            elsif again operator(pg_catalog.=) 3 then
                perform pg_catalog.pg_notify('pgcourier', pg_catalog.concat('t', root::pg_catalog.oid));
            end if;
        end loop;
    end loop;
    return null;
end
$$;

-- What is due for a queue has changed, and not by an insert into its table.
create function outbox.wake_by_queue() returns trigger
    language plpgsql stable
as $$
declare
    hash pg_catalog.int4 := pg_catalog.hashtext(case when tg_op operator(pg_catalog.=) 'DELETE' then old.queue else new.queue end);
begin
    for again in 2 .. 3 loop
        if (case when pg_catalog.pg_try_advisory_lock(1189806900, hash)
                 then not pg_catalog.pg_advisory_unlock(1189806900, hash) else true end) is not true then
            return null;
        end if;
    end loop;
    perform pg_catalog.pg_notify('pgcourier', pg_catalog.concat('q', hash));
    return null;
end
$$;

-- Puts the trigger on a table, for INSERTs and UPDATEs there; on a partitioned one, on each partition, also on one that comes later.
-- Always, because the rows that a restore or another replication inserts have to be delivered, too. The table is in the condition as a
-- regclass, which stays right when the table is renamed or restored from a dump.
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
    execute format('create trigger outbox_wake after insert or update on %s for each %s when %s execute function outbox.%I()', tbl,
                   case kind when 'r' then 'statement' else 'row' end, outbox.rests_sql(-1818282541, format('%L::regclass::int4', tbl)),
                   case kind when 'r' then 'wake_by_statement' else 'wake_by_row' end);
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
    execute format('create trigger outbox_wake_%s after %s on %s for each row when (case when (%s) is not true then false else %s end)'
                   ' execute function outbox.wake_by_queue()', split_part(event, ' ', 1), event, tbl, condition,
                   outbox.rests_sql(1189806900, case event when 'delete' then 'hashtext(old.queue)' else 'hashtext(new.queue)' end));
end
$$;

-- An entry that is due at some time, or earlier than a relay that rests knows; and a key that is open again.
select outbox.wake_on('outbox.parked', 'insert', 'new.next_at < ''infinity''');
select outbox.wake_on('outbox.parked', 'update of next_at', 'new.next_at < old.next_at');
select outbox.wake_on('outbox.parked', 'delete', 'true');
-- A dead letter that is dropped is done for the events that wait for it.
select outbox.wake_on('outbox.dead', 'delete', 'true');
-- Those of paused and schedule are in 008_lifecycle and 014_schedules.

revoke all on function outbox.rests_sql(int, text), outbox.wake_by_statement(), outbox.wake_by_row(), outbox.wake_by_queue(),
    outbox.wake_on(regclass, text, text), outbox.install_wake(regclass), outbox.uninstall_wake(regclass) from public;
