-- 016_replay: archived and dead events, sent again.
--
--   select * from outbox.replay('orders', since => '2026-11-21 10:00+00', until => '2026-11-21 11:00+00');
--   select * from outbox.replay('orders', 'dead', type => 'paid', dry_run => true);
--
-- A replay is a table of its own, outbox.replay_N, with copies of the events that were chosen, under the ids and with the columns
-- that they had; `pgcourier replay` delivers from it as a relay does from the queue's table, by the locks of the queue's keys.
-- Relays that run do not take it up by themselves: what replay() answers has the command that sends it. So nothing is inserted
-- into a table that is not ours, and what is left of a replay is what was not delivered.

create table outbox.replay (
    replay_id   bigint generated always as identity primary key,
    queue       text not null,
    source      text not null check (source in ('archive', 'dead')),
    sink        text,            -- null: the queue's own
    destination text,            -- null: the queue's own
    rate        int,             -- events a second; null: no limit
    events      bigint not null, -- so many were chosen
    by          text not null default session_user,
    since       timestamptz not null default clock_timestamp(),
    ended_at    timestamptz,     -- null: it is not whole, and outbox.replay_N is there
    unsent      bigint           -- once ended: so many were given up
);

-- How a column of the queue's table is kept in a replay's. A domain counts as its base type, and what is not PostgreSQL's own as
-- text: whoever owns this schema need not have a right to it.
create function outbox.replay_type(column_type oid) returns text
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    with recursive base (oid, typtype, nspname) as (
        select t.oid, t.typtype, n.nspname from pg_type t join pg_namespace n on n.oid = t.typnamespace where t.oid = column_type
        union all
        select t.oid, t.typtype, n.nspname
          from base b join pg_type d on d.oid = b.oid join pg_type t on t.oid = d.typbasetype join pg_namespace n on n.oid = t.typnamespace
         where b.typtype = 'd'
    )
    select case when b.nspname = 'pg_catalog' then format_type(b.oid, -1) else 'text' end from base b where b.typtype <> 'd'
$$;

-- An event's headers with one more. What is no object stays as it is, to be refused as it was the first time.
create function outbox.replay_headers(headers text, replay_id bigint) returns text
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if headers is null then
        return format('{"pgcourier-replayed": "%s"}', replay_id);
    end if;
    return case when json_typeof(headers::json) <> 'object' then headers
                when headers ~ '^\s*\{\s*\}' then format('{"pgcourier-replayed": "%s"}', replay_id)
                else regexp_replace(headers, '^\s*\{', format('{"pgcourier-replayed": "%s", ', replay_id)) end;
exception
    when invalid_text_representation then
        return headers;
end
$$;

-- A dead letter that was delivered to where it should have gone is one no more. Its row leaves the replay's table in the same
-- statement.
create function outbox.replay_delivered() returns trigger
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    with deleted as (
        delete from outbox.dead d using delivered e where d.dead_id = e.pgcourier_dead_id
        returning d.queue, d.event_id, d.key, d.created_at, d.original
    )
    insert into outbox.archive (queue, event_id, key, created_at, original)
    select d.queue, d.event_id, d.key, d.created_at, d.original from deleted d where tg_argv[0] = 'archive';
    return null;
end
$$;

-- Which rows a of outbox.archive or outbox.dead are meant, as SQL.
create function outbox.replay_choice(queue text, source text, ids bigint[], key text, type text, since timestamptz, until timestamptz,
                                     type_column text) returns text
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    at text := case source when 'archive' then 'a.archived_at' else 'a.died_at' end;
begin
    if source is null or source not in ('archive', 'dead') then
        raise exception 'replay: % is neither the archive nor the dead letters', coalesce(quote_literal(left(source, 80)), 'null')
            using errcode = 'invalid_parameter_value', hint = 'Give ''archive'' or ''dead''.';
    end if;
    if num_nonnulls(ids, replay_choice.key, replay_choice.type, since, until) = 0 or cardinality(ids) = 0 then
        raise exception 'replay: nothing says which events' using errcode = 'invalid_parameter_value',
            hint = 'Give ids, a key, a type, since or until, or several of these.';
    end if;
    if since >= until then
        raise exception 'replay: % is not before %', since, until using errcode = 'invalid_parameter_value',
            hint = 'since is the first moment that counts, until the first that does not.';
    end if;
    if source = 'archive' and replay_choice.type is not null and type_column is null then
        raise exception 'replay: no column of queue % is its type', quote_literal(replay_choice.queue)
            using errcode = 'invalid_parameter_value', hint = 'Name its column, or choose by something else.';
    end if;
    return concat_ws(' and ', format('a.queue = %L', replay_choice.queue),
        'a.event_id = any (' || quote_literal(ids) || '::bigint[])',
        'a.key = ' || quote_literal(replay_choice.key),
        case source when 'archive' then format('a.original ->> %L', type_column) else 'a.type' end || ' = ' || quote_literal(replay_choice.type),
        at || ' >= ' || quote_literal(since) || '::timestamptz', at || ' < ' || quote_literal(until) || '::timestamptz');
end
$$;

-- The map's word on columns that the queue's table has no more, or generates now: {"OLD": "NEW"}, or null for values that are to be left
-- out, and {"": "NEW"} where nothing goes into NEW.
create function outbox.replay_moves(tbl oid, map jsonb) returns jsonb
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    moves jsonb := coalesce(nullif(map -> 'columns', 'null'), '{}');
    wrong text;
begin
    if jsonb_typeof(moves) <> 'object' then
        raise exception 'replay: the columns of a map are %', moves using errcode = 'invalid_parameter_value',
            hint = 'Write {"columns": {"OLD": "NEW"}}, or null instead of "NEW" for values that are to be left out.';
    end if;
    select m.key into wrong from jsonb_each(moves) m
      join pg_attribute a on a.attrelid = tbl and a.attname = m.key and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' limit 1;
    if found then
        raise exception 'replay: % has a column %', tbl::regclass, quote_literal(wrong) using errcode = 'invalid_parameter_value',
            hint = 'Only what is in a column that the table has no more can go to another one.';
    end if;
    select m.value into wrong from jsonb_each_text(moves) m
      left join pg_attribute a on a.attrelid = tbl and a.attname = m.value and a.attnum > 0 and not a.attisdropped
     group by m.value having m.value is not null and (count(a.attname) = 0 or count(*) > 1) limit 1;
    if found then
        raise exception 'replay: % is no column of % that values of one other column can go to', quote_literal(wrong), tbl::regclass
            using errcode = 'invalid_parameter_value', hint = 'Name one that the table has, and each once.';
    end if;
    return moves;
end
$$;

-- A row as it was, its values where `moves` sends them. A name that a generated column has now stays where it is in a row that knows
-- the column where its values would go: it was generated then, too.
create function outbox.replay_moved(original json, moves jsonb, generated text[]) returns json
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $$
    select json_object_agg(coalesce(case when w.goes then moves ->> o.key end, o.key), o.value)
      from json_each(original) o
     cross join lateral (select moves ? o.key and not (o.key = any (generated) and original -> (moves ->> o.key) is not null)) w (goes)
     where case when w.goes
                then moves ->> o.key is not null and (original ->> o.key is not null or original -> (moves ->> o.key) is null)
                else not exists (select from jsonb_each_text(moves) m
                                  where m.value = o.key and m.key <> all (generated) and original ->> m.key is not null) end
$$;

create function outbox.replay_generated(tbl oid) returns text[]
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select array(select a.attname::text from pg_attribute a where a.attrelid = tbl and a.attnum > 0 and not a.attisdropped and a.attgenerated <> '')
$$;

-- Refuses to choose an event with a value that would be lost without a word, because the queue's table has no column for it.
create function outbox.replay_check(source text, chosen text, tbl oid, moves jsonb) returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    known text[] := array(select a.attname::text from pg_attribute a where a.attrelid = tbl and a.attnum > 0 and not a.attisdropped);
    lost  record;
begin
    execute format('select a.event_id as id, o.key as name, $2 ->> o.key as new_name'
                   ' from outbox.%I a cross join lateral json_each_text(a.original) o'
                   ' where %s and o.value is not null and o.key <> all ($1)'
                   ' and case when $2 ? o.key then a.original ->> ($2 ->> o.key) is not null else true end'
                   ' order by 1, 2 limit 1', source, chosen) into lost using known, moves;
    if lost.new_name is not null then
        raise exception 'replay: event % has values in both columns, % and %', lost.id, quote_literal(lost.name), quote_literal(lost.new_name)
            using errcode = 'object_not_in_prerequisite_state', hint = format('With --column %s= the first is left out.', lost.name);
    elsif lost.id is not null then
        raise exception 'replay: event % has a value in column %, which % has no more', lost.id, quote_literal(lost.name), tbl::regclass
            using errcode = 'object_not_in_prerequisite_state',
            hint = format('Add the column, or give --column %s=NEW to send such values in another one, or --column %1$s= to leave them out'
                          ' (in SQL: map => ''{"columns": {"%1$s": "NEW"}}'', or null).', lost.name);
    end if;
end
$$;

-- Refuses to choose an event that would be sent without its payload, type or headers: it lacks the column that the queue maps, and has a
-- value in one that is generated from that now, or, for the payload, in any that the queue does not map. An old name may be used again.
create function outbox.replay_check_sent(source text, chosen text, tbl oid, moves jsonb, map jsonb) returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    kept    text[];
    missing text[];
    lost    record;
begin
    -- Before PostgreSQL 15 it is the generated column that depends on others, since then its expression.
    select array_agg(g.attname::text), array_agg(m.attname::text) into kept, missing
      from pg_attribute g
      join pg_attrdef e on e.adrelid = tbl and e.adnum = g.attnum
      join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = tbl and d.refobjsubid <> g.attnum
           and (d.classid = 'pg_attrdef'::regclass and d.objid = e.oid or d.classid = 'pg_class'::regclass and d.objid = tbl and d.objsubid = g.attnum)
      join pg_attribute m on m.attrelid = tbl and m.attnum = d.refobjsubid and m.attname in (map ->> 'type', map ->> 'payload', map ->> 'headers')
     where g.attrelid = tbl and g.attgenerated <> '';
    execute format('select a.event_id as id, o.key as name, coalesce(g.missing, $3) as missing'
                   ' from outbox.%I a cross join lateral json_each_text(a.original) with ordinality o (key, value, number)'
                   ' left join unnest($1, $2) g (name, missing) on g.name = o.key'
                   ' where %s and o.value is not null and a.original -> coalesce(g.missing, $3) is null and not $4 ? o.key'
                   ' and (g.missing is not null or $3 is not null and o.key <> all ($5))'
                   ' and not exists (select from jsonb_each_text($4) v where v.value = coalesce(g.missing, $3)'
                   ' and (v.key = '''' or a.original -> v.key is not null))'
                   ' order by a.event_id, g.missing is null, o.number limit 1', source, chosen)
       into lost using kept, missing, map ->> 'payload', moves,
                       array(select m.value from jsonb_each_text(map) m where m.key in ('id', 'key', 'type', 'headers') and m.value is not null);
    if lost.id is not null then
        raise exception 'replay: event % has no column %, which the queue maps', lost.id, quote_literal(lost.missing)
            using errcode = 'object_not_in_prerequisite_state',
            hint = format('Give --column OLD=%s to send what is in another column (%s?), or --column =%1$s to send nothing there'
                          ' (in SQL: map => ''{"columns": {"OLD": "%1$s"}}'', or "" instead of "OLD").', lost.missing, quote_literal(lost.name));
    end if;
end
$$;

-- Makes the table of a replay, fills it with what was chosen, and returns how many events that are. It has the columns of the
-- queue's table, and a payload, headers and the dead letter where that has none. `own`: it goes to the queue's own sink. A column that
-- is newer than the event has what PostgreSQL gave it in the rows of that time, where it still knows that; no default is evaluated
-- here, as it may be anybody's code.
create function outbox.replay_fill(replay_id bigint, source text, own boolean, chosen text, tbl oid, moves jsonb, map jsonb) returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    made    text := 'replay_' || replay_id;
    columns text;
    names   text;
    fields  text;
    dead    boolean := source = 'dead' and own;
    filled  bigint;
begin
    select string_agg(format('%I %s', c.name, c.type), ', ' order by c.number), string_agg(quote_ident(c.name), ', ' order by c.number),
           string_agg(case c.name when map ->> 'id' then 'a.event_id'
                                  when map ->> 'key' then format('coalesce(a.key::%s, r.%I)', c.type, c.name)
                                  when map ->> 'headers' then format('outbox.replay_headers(r.%I::text, %s)::%s', c.name, replay_id, c.type)
                                  when 'pgcourier_payload' then 'a.original'
                                  when 'pgcourier_headers' then format('outbox.replay_headers(null, %s)::json', replay_id)
                                  when 'pgcourier_dead_id' then 'a.dead_id'
                                  else case when c.missing is null then format('r.%I', c.name)
                                       else format('case when w.original -> %L is null then %L::%s else r.%1$I end', c.name, c.missing, c.type)
                                       end end, ', ' order by c.number)
      into columns, names, fields
      from (select a.attnum, a.attname, outbox.replay_type(a.atttypid), (a.attmissingval::text::text[])[1] from pg_attribute a
             where a.attrelid = tbl and a.attnum > 0 and not a.attisdropped
            union all
            select 2001, 'pgcourier_payload', 'json', null where map ->> 'payload' is null
            union all
            select 2002, 'pgcourier_headers', 'json', null where map ->> 'headers' is null
            union all
            select 2003, 'pgcourier_dead_id', 'bigint', null where dead) c (number, name, type, missing);
    execute format('create table outbox.%I (%s, primary key (%I))', made, columns, map ->> 'id');
    begin
        execute format('insert into outbox.%I (%s) select %s from outbox.%I a'
                       ' cross join lateral (select %6$s) w (original)'
                       ' cross join lateral json_populate_record(null::outbox.%1$I, w.original) r where %5$s',
                       made, names, fields, source, chosen,
                       case moves when '{}' then 'a.original' else format('outbox.replay_moved(a.original, %L, %L)', moves, outbox.replay_generated(tbl)) end);
        get diagnostics filled = row_count;
    exception
        when unique_violation then
            raise exception 'replay: an id is there more than once' using errcode = 'invalid_parameter_value',
                hint = 'Ids that began anew are told apart by time: give since and until.';
    end;
    if map ->> 'key' <> map ->> 'id' then
        execute format('create index on outbox.%I (%I, %I)', made, map ->> 'key', map ->> 'id');
    end if;
    if dead then
        execute format('create trigger delivered after delete on outbox.%I referencing old table as delivered'
                       ' for each statement execute function outbox.replay_delivered(%L)', made, map ->> 'after');
    end if;
    if to_regrole('outbox_operator') is not null then
        execute format('grant select, delete on outbox.%I to outbox_operator', made);
    end if;
    execute format('grant select, delete on outbox.%I to %I', made, session_user);
    execute format('analyze outbox.%I', made);
    return filled;
end
$$;

-- Chooses archived or dead events of a queue to be sent again, and returns the number of the replay, how many they are, and the
-- command that sends them, with the place of the configuration to be filled in: until it is run nothing is sent. Null, 0 and
-- null when there are none. `since` and `until` are times of delivery, or of death. dry_run only counts.
--
-- The queue's table and columns are those of outbox.queue (queue_set), unless `map` has them: table (its name or OID), id,
-- and maybe key, type, payload, headers, after and then. With or without those it may have columns: see replay_moves().
create function outbox.replay(
    queue text, source text default 'archive', ids bigint[] default null, key text default null, type text default null,
    since timestamptz default null, until timestamptz default null, sink text default null, destination text default null,
    rate int default null, dry_run boolean default false, map jsonb default null, out replay_id bigint, out events bigint, out run text)
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    own    boolean := replay.sink is null and replay.destination is null;
    chosen text;
    tbl    oid;
    moves  jsonb;
begin
    perform outbox.check_queue('replay', replay.queue);
    if map is null or map - 'columns' = '{}' then
        select jsonb_build_object('table', q.tbl::oid, 'id', q.id_column, 'key', q.key_column, 'type', q.type_column,
                                  'payload', q.payload_column, 'headers', q.headers_column, 'after', q.after,
                                  'then', q.then_queue, 'columns', map -> 'columns')
          into map from outbox.queue q where q.name = replay.queue;
        if not found then
            raise exception 'replay: there is no queue %', quote_literal(replay.queue) using errcode = 'undefined_object',
                hint = 'outbox.queue_set() makes one known to SQL; pgcourier replay knows those of its configuration.';
        end if;
    end if;
    if map ->> 'table' is null or map ->> 'id' is null then
        raise exception 'replay: a map has the table and its id' using errcode = 'null_value_not_allowed',
            hint = 'Leave it out for a queue of outbox.queue.';
    end if;
    chosen := outbox.replay_choice(replay.queue, replay.source, ids, replay.key, replay.type, replay.since, replay.until, map ->> 'type');
    if replay.source = 'dead' and own and map ->> 'then' is not null then
        raise exception 'replay: queue % hands on to %, where a dead letter that is sent again would not get', quote_literal(replay.queue), map ->> 'then'
            using errcode = 'invalid_parameter_value', hint = 'Use `pgcourier dead retry`, or another sink.';
    end if;
    if replay.rate not between 1 and 1000000 then
        raise exception 'replay: % events a second is no rate', replay.rate using errcode = 'invalid_parameter_value',
            hint = 'Give 1 to 1000000, or null for no limit.';
    end if;
    tbl := case when map ->> 'table' ~ '^[0-9]+$' then (map ->> 'table')::oid else (map ->> 'table')::regclass end;
    moves := outbox.replay_moves(tbl, map);
    perform outbox.replay_check(replay.source, chosen, tbl, moves);
    perform outbox.replay_check_sent(replay.source, chosen, tbl, moves, map);
    if dry_run then
        execute format('select count(*) from outbox.%I a where %s', replay.source, chosen) into replay.events;
        return;
    end if;
    insert into outbox.replay (queue, source, sink, destination, rate, events)
    values (replay.queue, replay.source, replay.sink, replay.destination, replay.rate, 0) returning outbox.replay.replay_id into replay.replay_id;
    replay.events := outbox.replay_fill(replay.replay_id, replay.source, own, chosen, tbl, moves, map);
    if replay.events = 0 then
        execute format('drop table outbox.%I', 'replay_' || replay.replay_id);
        delete from outbox.replay p where p.replay_id = replay.replay_id;
        replay.replay_id := null;
        return;
    end if;
    update outbox.replay p set events = replay.events where p.replay_id = replay.replay_id;
    replay.run := format('pgcourier replay -c FILE --resume %s', replay.replay_id);
end
$$;

-- What a replay's events wait for is in outbox.parked under this name, apart from the queue's own.
create function outbox.replay_name(queue text, replay_id bigint) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $$
    select format('%s (replay %s)', queue, replay_id)
$$;

-- One process at a time, until its transaction ends: the rate is a process's own, and the last one drops the table. Who has waited
-- looks after that whether there is anything left to do: the other may have ended the replay, or cancelled it.
create function outbox.replay_lock(replay_id bigint) returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '5s'
as $$
begin
    begin
        -- FNV-1a of "pgcourier:replay".
        perform pg_advisory_xact_lock(-719233876, (replay_id % 2147483647)::int);
    exception
        when lock_not_available then
            raise exception 'replay % is under way', replay_id
                using errcode = 'object_in_use', hint = 'Wait for its end, or stop that pgcourier replay.';
    end;
    if not exists (select from outbox.replay p where p.replay_id = replay_lock.replay_id and p.ended_at is null) then
        raise exception 'replay: there is none with the number % that is not whole', coalesce(replay_id::text, 'null')
            using errcode = 'undefined_object', hint = 'See select * from outbox.replay where ended_at is null.';
    end if;
end
$$;

-- Before a replay goes on: what it is; and its keys that were closed after failures are open again.
create function outbox.replay_begin(replay_id bigint) returns outbox.replay
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    begun outbox.replay;
begin
    perform outbox.replay_lock(replay_begin.replay_id);
    select p.* into strict begun from outbox.replay p where p.replay_id = replay_begin.replay_id;
    delete from outbox.parked p where p.queue = outbox.replay_name(begun.queue, begun.replay_id);
    return begun;
end
$$;

-- Ends a replay, whole or not, and returns how many of its events were not delivered: they are sent no more. Dead letters among
-- them stay dead letters; what was a dead letter and is none any more is not counted.
create function outbox.replay_end(replay_id bigint) returns bigint
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '5s'
as $$
declare
    ended  outbox.replay := outbox.replay_begin(replay_end.replay_id);
    rest   bigint;
begin
    execute format('lock table outbox.%I in access exclusive mode', 'replay_' || ended.replay_id);
    execute format('select count(*) from outbox.%I e where %s', 'replay_' || ended.replay_id,
                   case when ended.source = 'dead' and ended.sink is null and ended.destination is null
                        then 'exists (select from outbox.dead d where d.dead_id = e.pgcourier_dead_id)' else 'true' end) into rest;
    execute format('drop table outbox.%I', 'replay_' || ended.replay_id);
    update outbox.replay p set ended_at = clock_timestamp(), unsent = rest where p.replay_id = ended.replay_id;
    return rest;
end
$$;

revoke all on all functions in schema outbox from public;
