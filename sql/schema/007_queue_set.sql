-- 007_queue_set: setting up a queue for workers, changing its settings, dropping the queue.

-- Makes a queue known, or known anew; names of columns are exact. Over outbox.events all its columns are mapped.
create function outbox.queue_set(
    name text, tbl regclass default 'outbox.events', id_column name default 'id', key_column name default null,
    type_column name default null, payload_column name default null, headers_column name default null,
    traceparent_column name default null, created_at_column name default null, condition text default null,
    lock_class int default null, max_attempts int default 12, retry_base interval default '1 s', retry_max interval default '5 min',
    on_exhausted text default 'dead_letter', after text default 'delete', not_before_column name default null,
    delayed text default 'hold', then_queue text default null, then_payload text default 'event', after_column name default null,
    priority_column name default null)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    q      outbox.queue;
    old    outbox.queue;
    other  outbox.queue;
    busy   timestamptz;
    moved  boolean; -- it is of other rows, or orders them otherwise
    other_relay record;
begin
    if tbl = 'outbox.events'::regclass and coalesce(key_column, type_column, payload_column, headers_column, traceparent_column, created_at_column, not_before_column) is null then
        key_column := 'aggregateid'; type_column := 'type'; payload_column := 'payload'; headers_column := 'headers';
        traceparent_column := 'traceparent'; created_at_column := 'created_at'; not_before_column := 'not_before';
    end if;
    perform outbox.check_queue_table(queue_set.name, tbl, id_column, key_column,
        array[type_column, payload_column, headers_column, traceparent_column, created_at_column, not_before_column,
              after_column, priority_column], condition);
    if not_before_column is not null and (select a.atttypid from pg_attribute a where a.attrelid = tbl and a.attname = not_before_column)
                                         <> 'timestamptz'::regtype then
        raise exception 'queue_set: % of % is no timestamp with time zone', quote_ident(not_before_column), tbl
            using errcode = 'datatype_mismatch', hint = format('alter table %s alter column %I type timestamptz;', tbl, not_before_column);
    end if;
    if created_at_column is not null
       and not exists (select from outbox.types_of(tbl, created_at_column) t where t in ('timestamptz'::regtype, 'timestamp'::regtype)) then
        raise exception 'queue_set: % of % is no time', quote_ident(created_at_column), tbl
            using errcode = 'datatype_mismatch', hint = 'Give a column of type timestamptz or timestamp, or leave created_at_column out.';
    end if;
    if after_column is not null and (select a.atttypid from pg_attribute a where a.attrelid = tbl and a.attname = after_column)
                                    <> all ('{bigint,integer,bigint[],integer[]}'::regtype[]) then
        raise exception 'queue_set: % of % holds no ids', quote_ident(after_column), tbl
            using errcode = 'datatype_mismatch', hint = 'Give a column of type bigint[], bigint, integer[] or integer.';
    end if;
    if outbox.key_type_of(tbl, priority_column) not in ('none', 'bigint') is not false then
        raise exception 'queue_set: % of % is no priority', quote_ident(priority_column), tbl
            using errcode = 'datatype_mismatch', hint = 'Give a column of type bigint, integer or smallint.';
    end if;
    q := (queue_set.name, tbl, id_column, key_column, type_column, payload_column, headers_column, traceparent_column,
          created_at_column, not_before_column, delayed, after_column, priority_column, nullif(btrim(condition), ''), coalesce(lock_class, outbox.lock_class_of(tbl)), max_attempts, retry_base,
          retry_max, on_exhausted, after, then_queue, then_payload, outbox.key_type_of(tbl, key_column), false, null);
    perform outbox.check_queue_rules(q);
    q.key_index := exists (
        select from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am m on m.oid = c.relam
         where i.indrelid = tbl and i.indisvalid and i.indpred is null and m.amname = 'btree'
           and i.indkey[0] = (select a.attnum from pg_attribute a where a.attrelid = tbl and a.attname = key_column)
           and i.indkey[1] = (select a.attnum from pg_attribute a where a.attrelid = tbl and a.attname = id_column));
    if key_column is not null and not q.key_index then
        raise notice 'queue_set: % has no index on (%, %): a key with many events is slow%', tbl,
                     quote_ident(key_column), quote_ident(id_column),
                     case when q.key_type = 'text' then '; the index would refuse keys of more than 2600 bytes, which stop take()' else '' end
            using hint = format('create index concurrently on %s (%I, %I); then queue_set() again', tbl, key_column, id_column);
    end if;
    if priority_column is not null and not (
        select i.priority_id from outbox.indexes_of(tbl, outbox.attnum_of(tbl, id_column), -1, outbox.attnum_of(tbl, priority_column)) i) then
        raise notice 'queue_set: % has no index on (% desc, %): each take() reads and sorts the table', tbl, quote_ident(priority_column),
                     quote_ident(id_column)
            using hint = format('create index concurrently on %s (%I desc, %I);', tbl, priority_column, id_column);
    end if;
    if delayed = 'pass' and not_before_column is not null and not outbox.has_due_index(tbl, outbox.attnum_of(tbl, not_before_column)) then
        raise notice 'queue_set: % has no index on (%): what has become due is looked for in the whole table', tbl, quote_ident(not_before_column)
            using hint = format('create index concurrently on %1$s (%2$I) where %2$I is not null; then queue_set() again', tbl, not_before_column);
    end if;
    perform outbox.queue_wait('queue_set', null);
    select x.* into other from outbox.queue x
     where x.name <> q.name
       and exists (select * from outbox.parts_of(x.tbl) intersect select * from outbox.parts_of(q.tbl))
       and (x.condition is null or q.condition is null or x.condition = q.condition or x.lock_class <> q.lock_class)
     limit 1;
    if found then
        raise exception 'queue_set: % is the table of queue %, too', q.tbl, quote_literal(other.name)
            using errcode = 'object_not_in_prerequisite_state',
                  hint = 'Give each of the two a condition that leaves the other''s rows alone, and both the same lock_class.';
    end if;
    select o.* into other_relay from outbox.serves_otherwise(q.tbl, q.lock_class) o;
    if found then
        raise exception 'queue_set: a relay serves % with lock_class %, and not %: %', q.tbl, other_relay.other_class, q.lock_class, other_relay.who
            using errcode = 'object_in_use', hint = 'Workers and relays would deliver the same keys at once: give both the same lock_class, or stop the relays first.';
    end if;
    select x.* into old from outbox.queue x where x.name = q.name;
    moved := old.name is not null and (old.tbl, old.id_column, old.key_type, old.key_column is not distinct from q.key_column, old.lock_class)
        is distinct from (q.tbl, q.id_column, q.key_type, true, q.lock_class);
    if moved then
        perform outbox.queue_wait('queue_set', old.number);
    end if;
    select max(coalesce(p.resume_at, p.next_at)) into busy from outbox.parked p where p.queue = q.name and p.token is not null;
    if moved and busy > clock_timestamp() then
        raise exception 'queue_set: workers have events of queue % until %', quote_literal(q.name), busy
            using errcode = 'object_in_use', hint = 'Its table, its key and its locks may change when none has. See outbox.status_leases.';
    end if;
    perform outbox.check_next(q);
    if coalesce(current_setting('outbox.queues_changed', true), '') = '' then -- else workers still use what this transaction has replaced
        perform outbox.queue_clear();
        perform set_config('outbox.queues_changed', 'yes', true);
    end if;
    q.number := nextval(pg_get_serial_sequence('outbox.queue', 'number'));
    if old.name is null then
        insert into outbox.queue select q.*;
    else
        perform outbox.queue_replace(q);
    end if;
    if not moved and (old.condition, old.not_before_column, old.delayed, old.after_column, old.priority_column)
                     is not distinct from (q.condition, q.not_before_column, q.delayed, q.after_column, q.priority_column) then
        perform outbox.mark_keep(old, q.number);
    end if;
    perform outbox.queue_build(q);
    -- Whoever hands on to it knows its columns.
    for other in select x.* from outbox.queue x where x.then_queue = q.name loop
        perform outbox.check_next(other);
        old := other;
        other.number := nextval(pg_get_serial_sequence('outbox.queue', 'number'));
        perform outbox.queue_replace(other);
        perform outbox.mark_keep(old, other.number);
        perform outbox.queue_build(other);
    end loop;
end
$$;

-- Not deleted and inserted: what refers to it stays.
create function outbox.queue_replace(q outbox.queue) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format('update outbox.queue x set (%1$s) = (select %1$s from (select ($1).*) n) where x.name = ($1).name',
                   (select string_agg(quote_ident(a.attname), ', ' order by a.attnum) from pg_attribute a
                     where a.attrelid = 'outbox.queue'::regclass and a.attnum > 0 and not a.attisdropped and a.attname <> 'name'))
        using q;
end
$$;

-- Drops the functions, and the marks, of old numbers that nobody uses.
create function outbox.queue_clear() returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    old record;
begin
    for old in select * from outbox.queue_old()
    loop
        if pg_try_advisory_xact_lock(2046768146, old.number) then
            execute format('drop function %s', old.made);
            delete from outbox.take_mark t where t.number = old.number;
        end if;
    end loop;
end
$$;

-- Forgets a queue. What waits, what workers have, and dead letters stay; a verdict comes too late until it is known again. Schedules
-- would fail from then on with nobody to tell but a log: they go first. Its row is locked as schedule_set() does, so that none comes
-- between the look and the end.
create function outbox.queue_drop(name text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    q     outbox.queue;
    other text;
    drops text;
begin
    perform outbox.queue_wait('queue_drop', null);
    select x.* into q from outbox.queue x where x.name = queue_drop.name;
    if not found then
        raise exception 'queue_drop: there is no queue %', coalesce(quote_literal(queue_drop.name), 'null')
            using errcode = 'undefined_object', hint = coalesce('There are: ' || (select string_agg(x.name, ', ' order by x.name) from outbox.queue x) || '.',
                                                                'There is none.');
    end if;
    perform outbox.queue_wait('queue_drop', q.number);
    perform from outbox.queue x where x.name = q.name for update; -- now: a take() that moves its marks refers to the row
    select x.name into other from outbox.queue x where x.then_queue = q.name limit 1;
    if found then
        raise exception 'queue_drop: queue % hands on to queue %', quote_literal(other), quote_literal(q.name)
            using errcode = 'dependent_objects_still_exist', hint = 'Change or drop that one first.';
    end if;
    select string_agg(quote_literal(s.name), ', ' order by s.name), string_agg(format('outbox.schedule_drop(%L)', s.name), ', ' order by s.name)
      into other, drops
      from (select x.name from outbox.schedule x where x.queue = q.name order by 1 limit 20) s;
    if other is not null then
        raise exception 'queue_drop: schedules put events into queue %: %', quote_literal(q.name), other
            using errcode = 'dependent_objects_still_exist',
                  hint = format('Set them for another queue, or drop them first: select %s;', drops);
    end if;
    delete from outbox.queue x where x.name = q.name;
    perform outbox.queue_clear();
end
$$;

revoke all on all functions in schema outbox from public;
