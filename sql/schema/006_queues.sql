-- 006_queues: what SQL knows of a queue, which a relay reads from its configuration: its table, its columns, its rules.
--
--   select outbox.queue_set('tasks');                                                over outbox.events
--   select outbox.queue_set('orders', 'public.events', key_column => 'order_id', ...); over a table of your own

-- What workers may pull from. Only the owner of this schema writes here (queue_set), because the functions below run with
-- the owner's rights, and so does `condition`.
create table outbox.queue (
    name               text primary key check (name <> ''), -- what a relay's configuration calls it, too
    tbl                regclass not null,
    id_column          name not null,
    key_column         name,
    type_column        name,
    payload_column     name,
    headers_column     name,
    traceparent_column name,
    created_at_column  name,
    not_before_column  name,
    delayed            text not null check (delayed in ('hold', 'pass')),
    after_column       name,                 -- ids of events that must be done first
    priority_column    name,                 -- larger goes first
    condition          text,
    lock_class         int not null,
    max_attempts       int not null check (max_attempts > 0),
    retry_base         interval not null check (retry_base between '1 ms' and '1 day'),
    retry_max          interval not null check (retry_max between retry_base and '30 days'),
    on_exhausted       text not null check (on_exhausted in ('dead_letter', 'park')),
    after              text not null check (after in ('delete', 'archive')),
    then_queue         text,                 -- gets what is done; null: it ends here
    then_payload       text not null check (then_payload in ('event', 'response')),
    key_type           text not null check (key_type in ('none', 'bigint', 'text', 'uuid')),
    key_index          boolean not null, -- there is an index on (key, id)
    number             int generated always as identity -- in the names of its functions: queue_build()
);

-- FNV-1a, as in lock_class_of() of relay/table.c.
create function outbox.lock_class_of(tbl regclass) returns int
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    plain bytea := (select convert_to('pgcourier:' || n.nspname || '.' || c.relname, 'UTF8')
                      from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = tbl);
    hash  bigint := 2166136261;
begin
    for i in 0 .. length(plain) - 1 loop
        hash := ((hash # get_byte(plain, i)) * 16777619) & 4294967295;
    end loop;
    return (hash::bit(32))::int;
end
$$;

-- The advisory lock's second half, as in table_lock_hash() of relay/table.c.
create function outbox.lock_hash(key_type text, key text, id bigint) returns int
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $$
    select case when key is null then hashint8(id) when key_type = 'bigint' then hashint8(key::bigint) else hashtext(key) end
$$;

-- What a key column is to us, as in type_rules[] of relay/table.c; null: it cannot serve. A domain counts as its base type.
create function outbox.key_type_of(tbl regclass, key_column name) returns text
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select case when key_column is null then 'none' else (
        with recursive base (oid) as (
            select a.atttypid from pg_attribute a where a.attrelid = tbl and a.attname = key_column and not a.attisdropped
            union all
            select t.typbasetype from base b join pg_type t on t.oid = b.oid where t.typbasetype <> 0
        )
        select min(case when b.oid in ('bigint'::regtype, 'integer'::regtype, 'smallint'::regtype) then 'bigint'
                        when b.oid in ('text'::regtype, 'varchar'::regtype) then 'text'
                        when b.oid = 'uuid'::regtype then 'uuid' end) from base b) end
$$;

-- As in sql/table/table_indexes.sql: on (priority desc, id), or backwards.
create function outbox.has_priority_index(tbl regclass, id_column name, priority_column name) returns boolean
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select exists (
        select from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am m on m.oid = c.relam
         where i.indrelid = tbl and i.indisvalid and i.indpred is null and m.amname = 'btree'
           and i.indkey[0] = (select a.attnum from pg_attribute a where a.attrelid = tbl and a.attname = priority_column)
           and i.indkey[1] = (select a.attnum from pg_attribute a where a.attrelid = tbl and a.attname = id_column)
           and (i.indoption[0] = 3 and i.indoption[1] = 0 or i.indoption[0] = 0 and i.indoption[1] = 3))
$$;

-- Refuses what cannot be a queue. `pgcourier check-config --database` looks at a table more closely.
create function outbox.check_queue_table(name text, tbl regclass, id_column name, key_column name, others name[], condition text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    owner regrole := (select n.nspowner from pg_namespace n where n.nspname = 'outbox');
    wrong text;
begin
    if name is null or name = '' or tbl is null or id_column is null then
        raise exception 'queue_set: a queue has a name, a table and an id column'
            using errcode = 'null_value_not_allowed', hint = 'select outbox.queue_set(''tasks'');';
    end if;
    select string_agg(quote_ident(c), ', ') into wrong from unnest(array[id_column, key_column] || others) c
     where c is not null and not exists (select from pg_attribute a where a.attrelid = tbl and a.attname = c and a.attnum > 0 and not a.attisdropped);
    if wrong is not null then
        raise exception 'queue_set: % has no column %', tbl, wrong using errcode = 'undefined_column', hint = 'Give the names of columns exactly.';
    end if;
    if outbox.key_type_of(tbl, id_column) <> 'bigint' or outbox.key_type_of(tbl, key_column) is null then
        raise exception 'queue_set: an id is a bigint or integer, a key that, a text, varchar or uuid'
            using errcode = 'datatype_mismatch', hint = 'Give other columns as id_column and key_column; without a key no event waits for another.';
    end if;
    if exists (select from pg_attribute a join pg_collation c on c.oid = a.attcollation
                where a.attrelid = tbl and a.attname = key_column and not c.collisdeterministic) then
        raise exception 'queue_set: the collation of % takes texts of different bytes for equal', quote_ident(key_column)
            using errcode = 'datatype_mismatch', hint = 'They would be different keys here.';
    end if;
    if (select c.relkind not in ('r', 'p') from pg_class c where c.oid = tbl) then
        raise exception 'queue_set: % is no table', tbl
            using errcode = 'wrong_object_type', hint = 'Events are deleted by id: give the table behind the view.';
    end if;
    if not exists (select from pg_index i join pg_attribute a on a.attrelid = tbl and a.attname = id_column
                    where i.indrelid = tbl and i.indisunique and i.indisvalid and i.indpred is null and i.indkey[0] = a.attnum
                      and (i.indnkeyatts = 1 or (select c.relkind = 'p' from pg_class c where c.oid = tbl))) then
        raise exception 'queue_set: the id % of % is not unique', quote_ident(id_column), tbl
            using errcode = 'object_not_in_prerequisite_state', hint = format('create unique index concurrently on %s (%I);', tbl, id_column);
    end if;
    if not has_table_privilege(owner, tbl, 'select') or not has_table_privilege(owner, tbl, 'delete') then
        raise exception 'queue_set: take() and done() have the rights of %, who may not select and delete in %', owner, tbl
            using errcode = 'insufficient_privilege', hint = format('grant select, delete on %s to %s;', tbl, owner);
    end if;
    perform outbox.check_condition(tbl, condition);
end
$$;

-- A condition is one by itself and in parentheses, as it is used. Names in it mean what they mean to take(), which has no other
-- schema than pg_catalog in its search_path.
create function outbox.check_condition(tbl regclass, condition text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $check$
begin
    if nullif(btrim(condition), '') is null then
        return;
    end if;
    if position('$$' in condition) > 0 then
        raise exception 'queue_set: $$ in the condition' using errcode = 'invalid_parameter_value', hint = 'Quote with '', and write $$ as ''$''||''$''.';
    end if;
    begin
        execute format('explain select from %s e where (%s) limit 0', tbl, condition);
        execute format('explain select from %s e where %s', tbl, condition);
    exception
        when others then
            raise exception 'queue_set: the condition %: %', condition, sqlerrm
                using errcode = sqlstate, hint = 'Write what may stand in parentheses after WHERE, over columns of the table, e, and with the schema of all that is not pg_catalog''s.';
    end;
end
$check$;

-- Refuses rules that are none.
create function outbox.check_queue_rules(q outbox.queue) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    wrong record;
begin
    select x.* into wrong from (values
        ('name', left(q.name, 80), char_length(q.name) <= 200, 'Give 1 to 200 characters.'),
        ('max_attempts', q.max_attempts::text, q.max_attempts > 0, 'Give 1 or more: so often it is tried.'),
        ('retry_base', q.retry_base::text, q.retry_base between '1 ms' and '1 day', 'Give an interval from 1 ms to a day, like ''1 s''.'),
        ('retry_max', q.retry_max::text, q.retry_max between q.retry_base and '30 days', 'Give an interval from retry_base to 30 days, like ''5 min''.'),
        ('on_exhausted', q.on_exhausted, q.on_exhausted in ('dead_letter', 'park'), 'Give dead_letter or park.'),
        ('after', q.after, q.after in ('delete', 'archive'), 'Give delete or archive.'),
        ('delayed', q.delayed, q.delayed in ('hold', 'pass'), 'Give hold or pass.'),
        ('then_payload', q.then_payload, q.then_payload in ('event', 'response'), 'Give event or response.')) x (name, value, fits, hint)
     where x.fits is not true limit 1;
    if found then
        raise exception 'queue_set: % is %', wrong.name, coalesce(quote_literal(wrong.value), 'null')
            using errcode = 'invalid_parameter_value', hint = wrong.hint;
    end if;
end
$$;

-- What goes on from a queue to the next one, as relay/table_sql.c has it: `taken` are columns of e for RETURNING, `columns` and
-- `given` the next table's and what stands in them, of g, or of the answer r.
create function outbox.next_sql(q outbox.queue, next outbox.queue, out taken text, out columns text, out given text)
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select coalesce(string_agg(format(', %s as next_%s', c.value, c.name), '' order by c.name) filter (where not c.answered), ''),
           string_agg(quote_ident(c.column_name), ', ' order by c.name),
           string_agg(case when not c.answered then 'g.next_' || c.name
                           when t.oid = 'bytea'::regtype then 'convert_to(r.response, ''UTF8'')'
                           else format('r.response::%s', t.oid::regtype) end, ', ' order by c.name)
      from (values ('key', next.key_column, 'e.' || quote_ident(q.key_column), false),
                   ('type', next.type_column, 'e.' || quote_ident(q.type_column), false),
                   ('payload', next.payload_column, coalesce('e.' || quote_ident(q.payload_column), 'row_to_json(e.*)'), q.then_payload = 'response'),
                   ('headers', next.headers_column, 'e.' || quote_ident(q.headers_column), false),
                   ('traceparent', next.traceparent_column, 'e.' || quote_ident(q.traceparent_column), false))
             c (name, column_name, value, answered)
      join pg_attribute a on a.attrelid = next.tbl and a.attname = c.column_name
      join pg_type t on t.oid = a.atttypid
     where c.column_name is not null and c.value is not null
$$;

-- Refuses what cannot go on. Everything is asked of the schema's owner, whose rights done() has.
create function outbox.check_next(q outbox.queue) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    owner regrole := (select n.nspowner from pg_namespace n where n.nspname = 'outbox');
    next  outbox.queue;
    part  record;
    wrong text;
begin
    if q.then_queue is null then
        if q.then_payload <> 'event' then
            raise exception 'queue_set: queue % hands nothing on', quote_ident(q.name)
                using errcode = 'invalid_parameter_value', hint = 'Give then_queue, too, or leave then_payload out.';
        end if;
        return;
    end if;
    select x.* into next from outbox.queue x where x.name = q.then_queue;
    if not found and q.then_queue <> q.name then
        raise exception 'queue_set: there is no queue % to go on to', quote_ident(q.then_queue)
            using errcode = 'undefined_object', hint = 'Begin with the last stage: queue_set() knows the one before it then.';
    end if;
    if q.then_queue = q.name or exists (
        with recursive behind (name) as (
            select next.then_queue union select x.then_queue from behind b join outbox.queue x on x.name = b.name)
        select from behind b where b.name = q.name) then
        raise exception 'queue_set: what goes on to % comes back to %, for ever', quote_ident(q.then_queue), quote_ident(q.name)
            using errcode = 'invalid_parameter_value', hint = 'Leave one then_queue out.';
    end if;
    if q.then_payload = 'response' and next.payload_column is null then
        raise exception 'queue_set: queue % has no column for a response', quote_ident(next.name)
            using errcode = 'invalid_parameter_value', hint = 'Give payload_column there.';
    end if;
    part := outbox.next_sql(q, next);
    if part.columns is null then
        raise exception 'queue_set: nothing would go on to queue %', quote_ident(next.name)
            using errcode = 'invalid_parameter_value', hint = 'Map columns there, its payload at least.';
    end if;
    select string_agg(quote_ident(a.attname), ', ') into wrong from pg_attribute a
     where a.attrelid = next.tbl and a.attnum > 0 and not a.attisdropped and a.attnotnull and not a.atthasdef and a.attidentity = ''
       and a.attname <> all (array[coalesce(next.key_column, ''), coalesce(next.type_column, ''), coalesce(next.payload_column, ''),
                                   coalesce(next.headers_column, ''), coalesce(next.traceparent_column, '')]);
    if wrong is not null then
        raise exception 'queue_set: % of % must not be null, and nothing goes there', wrong, next.tbl
            using errcode = 'object_not_in_prerequisite_state', hint = 'Give it a default.';
    end if;
    if not has_table_privilege(owner, next.tbl, 'insert') then
        raise exception 'queue_set: done() has the rights of %, who may not insert into %', owner, next.tbl
            using errcode = 'insufficient_privilege', hint = format('grant insert on %s to %s;', next.tbl, owner);
    end if;
    select string_agg(distinct s.oid::regclass::text, ', ') into wrong
      from pg_attrdef d
      join pg_depend n on n.classid = 'pg_attrdef'::regclass and n.objid = d.oid and n.refclassid = 'pg_class'::regclass
      join pg_class s on s.oid = n.refobjid
     where d.adrelid = next.tbl and case when s.relkind = 'S' then not has_sequence_privilege(owner, s.oid, 'usage') end;
    if wrong is not null then
        raise exception 'queue_set: % has no usage on sequence %, from which % draws', owner, wrong, next.tbl
            using errcode = 'insufficient_privilege', hint = format('grant usage on sequence %s to %s;', wrong, owner);
    end if;
    -- Planned and not run: fails where a column takes no such values.
    execute format('explain insert into %s (%s) select %s from (select null::bigint as id%s from %s e) g, (select null::text as response) r',
                   next.tbl, part.columns, part.given, part.taken, q.tbl);
end
$$;

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
        raise notice 'queue_set: % has no index on (%, %): a key with many events is slow', tbl, quote_ident(key_column), quote_ident(id_column)
            using hint = format('create index concurrently on %s (%I, %I); then queue_set() again', tbl, key_column, id_column);
    end if;
    if priority_column is not null and not outbox.has_priority_index(tbl, id_column, priority_column) then
        raise notice 'queue_set: % has no index on (% desc, %): each take() reads and sorts the table', tbl, quote_ident(priority_column),
                     quote_ident(id_column)
            using hint = format('create index concurrently on %s (%I desc, %I);', tbl, priority_column, id_column);
    end if;
    if delayed = 'pass' and not_before_column is not null and not outbox.has_due_index(tbl, not_before_column) then
        raise notice 'queue_set: % has no index on (%): what has become due is looked for in the whole table', tbl, quote_ident(not_before_column)
            using hint = format('create index concurrently on %1$s (%2$I) where %2$I is not null; then queue_set() again', tbl, not_before_column);
    end if;
    lock table outbox.queue in share row exclusive mode;
    select x.* into other from outbox.queue x
     where x.name <> q.name
       and coalesce(pg_partition_root(x.tbl), x.tbl) = coalesce(pg_partition_root(q.tbl), q.tbl)
       and (x.condition is null or q.condition is null or x.condition = q.condition or x.lock_class <> q.lock_class)
     limit 1;
    if found then
        raise exception 'queue_set: % is the table of queue %, too', q.tbl, quote_ident(other.name)
            using errcode = 'object_not_in_prerequisite_state',
                  hint = 'Give each of the two a condition that leaves the other''s rows alone, and both the same lock_class.';
    end if;
    select x.* into old from outbox.queue x where x.name = q.name;
    select max(coalesce(p.resume_at, p.next_at)) into busy from outbox.parked p where p.queue = q.name and p.token is not null;
    if old.name is not null and busy > clock_timestamp() and (old.tbl, old.id_column, old.key_type, old.key_column is not distinct from q.key_column, old.lock_class)
        is distinct from (q.tbl, q.id_column, q.key_type, true, q.lock_class) then
        raise exception 'queue_set: workers have events of queue % until %', quote_ident(q.name), busy
            using errcode = 'object_in_use', hint = 'Its table, its key and its locks may change when none has. See outbox.status_leases.';
    end if;
    perform outbox.check_next(q);
    if old.name is not null then
        perform outbox.queue_forget(old);
    end if;
    q.number := nextval(pg_get_serial_sequence('outbox.queue', 'number'));
    insert into outbox.queue overriding system value select q.*;
    perform outbox.queue_build(q);
    -- Whoever hands on to it knows its columns.
    for other in select x.* from outbox.queue x where x.then_queue = q.name loop
        perform outbox.check_next(other);
        perform outbox.queue_unbuild(other.number);
        perform outbox.queue_build(other);
    end loop;
end
$$;

create function outbox.queue_unbuild(number int) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    made regprocedure;
begin
    for made in select p.oid from pg_proc p where p.pronamespace = 'outbox'::regnamespace and p.proname ~ format('^queue_%s_', number) loop
        execute format('drop function %s', made);
    end loop;
end
$$;

create function outbox.queue_forget(q outbox.queue) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    delete from outbox.queue x where x.name = q.name;
    perform outbox.queue_unbuild(q.number);
end
$$;

-- Forgets a queue. What waits, what workers have, and dead letters stay; a verdict comes too late until it is known again.
create function outbox.queue_drop(name text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    q     outbox.queue;
    other text;
begin
    select x.* into q from outbox.queue x where x.name = queue_drop.name;
    if not found then
        raise exception 'queue_drop: there is no queue %', coalesce(quote_ident(queue_drop.name), 'null')
            using errcode = 'undefined_object', hint = coalesce('There are: ' || (select string_agg(x.name, ', ' order by x.name) from outbox.queue x) || '.',
                                                                'There is none.');
    end if;
    select x.name into other from outbox.queue x where x.then_queue = q.name limit 1;
    if found then
        raise exception 'queue_drop: queue % hands on to queue %', quote_ident(other), quote_ident(q.name)
            using errcode = 'dependent_objects_still_exist', hint = 'Change or drop that one first.';
    end if;
    perform outbox.queue_forget(q);
end
$$;

revoke all on all functions in schema outbox from public;
