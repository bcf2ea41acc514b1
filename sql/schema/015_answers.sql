-- 015_answers: how the queues stand, in SQL, for people and for dashboards. docs/monitoring.md describes each view.
--
-- None of them takes longer because there is more: up to 10,000 rows are counted, where no more than 20,000 have to be looked at;
-- of more the planner says how many there may be, or a sample of 200 pages is read and multiplied; and what is not exact is
-- marked as estimated.
--
-- Which table a queue has is known here if outbox.queue says so, or a relay has noted it in outbox.served. Of any other queue
-- there is what lies in pgcourier's own tables.
--
-- DESIGN. Whoever owns a table may have code run by whoever reads it: it may become a view, have policies, or an index whose
-- expression is computed by each plan. So nothing here reads a table whose owner has lesser rights than this schema's owner, nor
-- one that a role with lesser rights may put another in the place of: outbox.is_ours(). Nor as whoever asks, who may have more
-- rights than both. Of such a table there is what the statistics of the server count.

-- The planner's guess at how many rows a query gives; it is planned and not run.
create function outbox.guess(query text) returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    plan json;
begin
    execute 'explain (format json) ' || query into plan;
    return (plan -> 0 -> 'Plan' ->> 'Plan Rows')::numeric;
end
$$;

-- For TABLESAMPLE SYSTEM, which takes whole pages: how many percent of these tables are 200 pages.
create function outbox.sample_of(tables regclass[]) returns real
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select coalesce(least(100, 100 * 200 * current_setting('block_size')::numeric / nullif(sum(pg_relation_size(t)), 0)), 100)::real
      from unnest(tables) t
$$;

-- How many rows a query gives, written from its FROM on: counted up to 10,000, guessed above. `fits` is what more its WHERE
-- asks and no index answers: up to 20,000 rows are looked at. `sampled` is the query over a sample of which each row stands for
-- `each`: where conditions hang together the planner's guess may be a thousand where there is none.
create function outbox.count_some(query text, fits text default null, sampled text default null, each float8 default 1,
                                  out rows bigint, out guessed boolean)
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    most  int := case when fits is null then 10000 else 20000 end;
    asks  text := coalesce(' and (' || fits || ')', '');
    guess bigint;
begin
    execute format('select count(*) filter (where fits), count(*) > $1 from (select %s as fits from %s limit $1 + 1) looked',
                   coalesce(fits, 'true'), query)
        into rows, guessed using most;
    if guessed and sampled is not null then
        execute 'select round(count(*) * $1)::bigint from ' || sampled || asks into guess using each;
    elsif guessed then
        guess := outbox.guess('select from ' || query || asks);
    end if;
    rows := greatest(rows, guess);
end
$$;

-- The archive of the last week and a day.
create function outbox.archive_lately() returns regclass[]
    language sql stable
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
as $$
    select array_agg(c.oid::regclass) from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'outbox.archive'::regclass
       and (c.relname = 'archive_default' or c.relname ~ '^archive_[0-9]{8}$' and c.relname >= 'archive_' || to_char(current_date - 7, 'YYYYMMDD'))
$$;

-- The queues that anything here knows of, without reading more than one row of each.
create function outbox.queue_names() returns setof text
    language sql stable security definer rows 10 -- with 1,000, as by default, whatever joins it looks worth compiling
    set search_path = pg_catalog, pg_temp
as $$
    with recursive parked (queue) as (
        (select p.queue from outbox.parked p order by p.queue limit 1)
        union all
        select (select p.queue from outbox.parked p where p.queue > l.queue order by p.queue limit 1) from parked l where l.queue is not null
    ), dead (queue) as (
        (select d.queue from outbox.dead d order by d.queue limit 1)
        union all
        select (select d.queue from outbox.dead d where d.queue > l.queue order by d.queue limit 1) from dead l where l.queue is not null
    )
    select x.queue from (select name from outbox.queue union select queue from outbox.served union select queue from parked union select queue from dead
                         union select queue from outbox.paused union select queue from outbox.archive_retention) x (queue)
     where x.queue is not null
$$;

-- Of these the queues over outbox.events; with `perhaps` those, too, of which nothing here says which table they have.
create function outbox.queues_of_events(perhaps boolean) returns setof text
    language sql stable rows 10
    set search_path = pg_catalog, pg_temp
as $$
    select n.queue
      from outbox.queue_names() n (queue)
      left join outbox.queue q on q.name = n.queue
      left join outbox.served s on s.queue = n.queue
     where coalesce(coalesce(q.tbl, s.tbl) = 'outbox.events'::regclass, perhaps)
$$;

-- May this table be read with the rights of this schema's owner? Everybody who can put code on it, on one of its partitions or children,
-- or another relation under its name, has to have these rights anyway; and the columns have types of PostgreSQL's own, as the casts of
-- others are code. It has to be called by a function with its owner's rights.
create function outbox.is_ours(tbl regclass, columns name[]) returns boolean
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = on -- who calls it may have set it off
    set enable_bitmapscan = on
    set enable_sort = on
as $$
begin
    return (select coalesce(bool_and(c.relkind in ('r', 'p') and pg_has_role(c.relowner, current_user, 'usage')
                             and pg_has_role(case when n.nspowner = to_regrole('pg_database_owner') then d.datdba else n.nspowner end, current_user, 'usage')),
                    false)
      from outbox.parts_of(tbl) p (oid)
      join pg_class c on c.oid = p.oid
      join pg_namespace n on n.oid = c.relnamespace
      join pg_database d on d.datname = current_database())
       and not exists (
        with recursive base (oid) as (
            select a.atttypid from pg_attribute a where a.attrelid = tbl and a.attname = any (columns)
            union
            select t.typbasetype from base b join pg_type t on t.oid = b.oid where t.typtype = 'd'
        )
        select from base b join pg_type t on t.oid = b.oid where t.typtype <> 'd' and t.typnamespace <> 'pg_catalog'::regnamespace);
end
$$;

-- How many events wait in a queue's table, and since when the oldest of those that will be delivered does. Where vacuum has
-- not come by for long, not even the first of them is found in no time.
create function outbox.backlog(q outbox.queue, out waiting bigint, out guessed boolean, out oldest_at timestamptz, out younger boolean)
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_sort = off
as $$
declare
    events text := format('select %2$s as key, e.%3$I::bigint as id, %4$s as created_at from %1$s e where (%5$s) order by e.%3$I',
        q.tbl, outbox.column_sql(q.key_column, 'text'), q.id_column, outbox.column_sql(q.created_at_column, 'timestamptz'),
        coalesce(q.condition, 'true'));
    live   bigint;
    dead_rows bigint;
    goes   int; -- are there such?
begin
    select sum(pg_stat_get_live_tuples(t.oid)), sum(pg_stat_get_dead_tuples(t.oid)) into live, dead_rows from outbox.parts_of(q.tbl) t (oid);
    if not outbox.is_ours(q.tbl, array[q.id_column, q.key_column, q.created_at_column]) then
        waiting := case when q.condition is null then live end;
        guessed := waiting is not null;
        return;
    end if;
    if dead_rows > 100000 or q.condition is not null and live > 100000 then
        guessed := true;
        waiting := case when q.condition is null then live else outbox.guess(events) end;
        return;
    end if;
    select c.rows, c.guessed into waiting, guessed from outbox.count_some(format('(%s) e', events)) c;
    execute format($query$
        select e.created_at from (%1$s limit 10000) e
         where case when e.key is null then not exists (
                        select from outbox.parked p where p.queue = %2$L and p.keyless and p.event_id = e.id and p.next_at = 'infinity')
                    else not exists (
                        select from outbox.parked p where p.queue = %2$L and not p.keyless and p.key = (e.key collate "default")
                        and p.next_at = 'infinity') end
         order by e.id limit 1$query$, events, q.name) into oldest_at;
    get diagnostics goes = row_count;
    if not goes::boolean then
        execute format('select e.created_at from (%s offset 9999 limit 1) e', events) into oldest_at;
        younger := oldest_at is not null;
    end if;
end
$$;

-- How many events each queue archived per second in the last minute, by the last 200 pages of today's partition.
create function outbox.archive_rates(out queue text, out per_second numeric) returns setof record
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
as $$
declare
    part text := 'outbox.archive_' || to_char(current_date, 'YYYYMMDD');
    page bigint := pg_relation_size(to_regclass(part)) / current_setting('block_size')::int - 200;
begin
    if to_regclass(part) is null then
        return;
    end if;
    return query execute format($query$
        with seen as materialized (
            select a.queue, a.archived_at from %s a where a.ctid >= '(%s,0)'::tid
        ), span as (
            select greatest(clock_timestamp() - interval '1 minute', case when %2$s > 0 then (select min(s.archived_at) from seen s) end) as since
        )
        select s.queue, round((count(*) / greatest(extract(epoch from clock_timestamp() - p.since), 1))::numeric, 1)
        from seen s, span p where s.archived_at >= p.since group by s.queue, p.since$query$, part, greatest(page, 0));
end
$$;

create function outbox.overview_rows()
    returns table (queue text, waiting bigint, oldest_age interval, running bigint, parked bigint, delayed bigint,
                   closed bigint, paused bigint,
                   paused_since timestamptz, dead bigint, per_second numeric, estimated text[], replay bigint)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off -- the first 10,001 rows are wanted, and not soon the last
    set enable_bitmapscan = off
as $$
#variable_conflict use_variable
declare
    q      outbox.queue;
    entry  text; -- what it is called in outbox.parked
    copies text; -- a replay's table
    asks   text;
    percent constant real := outbox.sample_of(array['outbox.parked'::regclass]);
    rates  jsonb := (select jsonb_object_agg(r.queue, r.per_second) from outbox.archive_rates() r);
    rules  constant text[] := array[ -- name, which rows of outbox.parked an index finds, and which of them count
        ['running', 'token is not null', 'next_at > statement_timestamp() and resume_at is null'],
        ['parked', 'token is null and (attempts > 0 or last_error <> '''') and next_at < ''infinity''', null],
        ['delayed', 'next_at > now()', 'token is null and attempts = 0 and last_error = '''' and resume_at is null'],
        ['closed', 'token is null and (attempts > 0 or last_error <> '''') and next_at = ''infinity''', 'resume_at is null'],
        ['paused', 'resume_at is not null', 'next_at = ''infinity''']];
    counts bigint[];
    counted record;
    rule   text[];
begin
    for queue, replay, entry in
        select coalesce(r.queue, n), r.replay_id, coalesce(r.entry, n)
          from outbox.queue_names() n
          full join (select o.queue, o.replay_id, outbox.replay_name(o.queue, o.replay_id) as entry from outbox.replay o
                      where o.ended_at is null) r on n = r.entry
         order by 1, 2 nulls first
    loop
        select * into q from outbox.queue x where x.name = queue and replay is null;
        if q.name is null and replay is null then
            select s.queue, s.tbl, s.lock_class, s.columns ->> 'id', s.columns ->> 'key', s.columns ->> 'created_at'
              into q.name, q.tbl, q.lock_class, q.id_column, q.key_column, q.created_at_column
              from outbox.served s where s.queue = overview_rows.queue;
        end if;
        estimated := '{}'; counts := '{}'; waiting := null; oldest_age := null; copies := 'outbox.replay_' || replay;
        if to_regclass(copies) is not null then
            select * into counted from outbox.count_some(copies || ' e');
            waiting := counted.rows;
            estimated := case when counted.guessed then array['waiting'] else '{}' end;
        elsif q.id_column is not null and exists (select from pg_class c where c.oid = q.tbl) then -- else only relays know which rows, or it is gone
            begin
                select * into counted from outbox.backlog(q);
                waiting := counted.waiting;
                oldest_age := case when isfinite(counted.oldest_at) then clock_timestamp() - counted.oldest_at end;
                estimated := case when counted.guessed then array['waiting'] else '{}' end
                             || case when counted.younger then array['oldest_age'] else '{}' end;
            exception
                when others then -- a column is gone, or its type is another: the other queues have theirs
                    if sqlstate !~ '^(22|42)' then
                        raise;
                    end if;
            end;
        end if;
        foreach rule slice 1 in array rules loop
            asks := format('where p.queue = %L and %s', entry, rule[2]);
            select * into counted from outbox.count_some('outbox.parked p ' || asks, rule[3],
                format('outbox.parked p tablesample system (%s) repeatable (0) %s', percent, asks), 100 / percent);
            counts := counts || counted.rows;
            estimated := estimated || case when counted.guessed then array[rule[1]] else '{}' end;
        end loop;
        running := counts[1] + (select case when q.lock_class is not null then count(*) end from pg_locks l
                                 where l.locktype = 'advisory' and l.objsubid = 2 and l.granted and l.classid::bigint = q.lock_class & 4294967295
                                   and l.database = (select d.oid from pg_database d where d.datname = current_database()));
        parked := counts[2]; delayed := counts[3]; closed := counts[4]; paused := counts[5];
        select * into counted from outbox.count_some( -- in the order in which they lie
            format('(select from outbox.dead d where d.queue = %L order by d.died_at) d', entry));
        dead := counted.rows;
        estimated := estimated || case when counted.guessed then array['dead'] else '{}' end;
        paused_since := (select p.since from outbox.paused p where p.queue = overview_rows.queue and p.key is null);
        per_second := rates ->> entry;
        return next;
    end loop;
end
$$;

-- A line for each queue, and for each replay that is not whole, under its queue's name and with its number.
create view outbox.overview as select * from outbox.overview_rows();

-- What events failed with, most often first: given up, or waiting for a retry or for somebody.
create view outbox.failures as
    with seen as (
        select d.queue, d.reason as error, 100 / outbox.sample_of(array['outbox.dead'::regclass]) as each, count(*) as dead, 0 as waiting,
               min(d.died_at) as first_at, max(d.died_at) as last_at
          from outbox.dead d tablesample system (outbox.sample_of(array['outbox.dead'::regclass])) repeatable (0)
         group by 1, 2
        union all
        select p.queue, p.last_error, 100 / outbox.sample_of(array['outbox.parked'::regclass]), 0, count(*),
               min(p.first_failed_at), max(p.updated_at)
          from outbox.parked p tablesample system (outbox.sample_of(array['outbox.parked'::regclass])) repeatable (0)
         where p.last_error <> ''
         group by 1, 2
    )
    select queue, error, round(sum(dead * each))::bigint as dead, round(sum(waiting * each))::bigint as waiting,
           min(first_at) as first_at, max(last_at) as last_at, max(each) > 1 as estimated
      from seen
     group by queue, error
     order by sum((dead + waiting) * each) desc, queue, error;

-- Does an event that comes after another one have to be done before that one, by what the heads of keys wait for? A round of more
-- than 100 events is not found out.
create function outbox.waits_for_itself(queue text, event_id bigint, after_id bigint) returns boolean
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    with recursive behind (id) as (
        select waits_for_itself.event_id
        union
        select p.event_id from behind b cross join lateral (
            select w.event_id from outbox.parked w where w.queue = waits_for_itself.queue and w.after_id between b.id and b.id
             order by w.after_id offset 0) p -- by its index, also where all wait for the same
    )
    select exists (select from (select b.id from behind b limit 100) b where b.id = waits_for_itself.after_id)
$$;

-- What does not go on by itself, or should have by now; up to 1,000 of each kind and queue. Of those that came to wait for
-- another event in the last minute 1,000 are looked at.
create view outbox.stuck as
    select s.* from outbox.queue_names() q (queue)
     cross join lateral (
        (select p.queue, 'closed' as what, case when not p.keyless then p.key end as key, p.event_id, p.updated_at as since,
                null::text as worker, p.last_error as error
           from outbox.parked p
          where p.queue = q.queue and p.next_at = 'infinity' and p.resume_at is null and (p.attempts > 0 or p.last_error <> '') limit 1000)
        union all
        (select p.queue, case when p.token is not null then 'lease over' else 'retry overdue' end,
                case when not p.keyless then p.key end, coalesce(p.taken_id, p.event_id), p.next_at,
                case when p.token is not null then p.worker end, p.last_error
           from outbox.parked p
          where p.queue = q.queue and p.next_at < now() and (p.token is not null or p.next_at < now() - interval '1 minute')
          order by p.next_at limit 1000)
        union all
        (select p.queue, 'lease over', p.key, p.taken_id, p.resume_at, p.worker, p.last_error -- of a paused key
           from outbox.parked p
          where p.queue = q.queue and p.token is not null and p.resume_at < now()
          order by p.resume_at limit 1000)
        union all
        (select p.queue, 'after', case when not p.keyless then p.key end, p.event_id, p.first_failed_at, null::text,
                format('waits for event %s%s', p.after_id,
                       case when exists (select from outbox.dead d where d.queue = p.queue and d.event_id = p.after_id) then ', a dead letter'
                            when outbox.waits_for_itself(p.queue, p.event_id, p.after_id) then ', which waits for it' end)
           from ((select * from outbox.parked o
                   where o.queue = q.queue and o.after_id is not null and o.token is null and o.attempts = 0
                     and o.first_failed_at < now() - interval '1 minute' limit 1000)
                 union all
                 select y.* from (
                    select * from outbox.parked o
                     where o.queue = q.queue and o.after_id is not null and o.token is null and o.attempts = 0
                       and o.first_failed_at >= now() - interval '1 minute' limit 1000) y
                  where exists (select from outbox.dead d where d.queue = y.queue and d.event_id = y.after_id)
                     or outbox.waits_for_itself(y.queue, y.event_id, y.after_id)) p limit 1000)) s;

-- How many dead letters a statement made. It is noted here because they do not stay: they are retried, dropped and purged. Whoever
-- makes some takes away what is older than the view below looks back.
create table outbox.died (
    queue   text not null,
    died_at timestamptz not null,
    events  bigint not null
);

create index died_at on outbox.died (died_at);

create function outbox.note_died() returns trigger
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    insert into outbox.died (queue, died_at, events) select d.queue, d.died_at, count(*) from died d group by d.queue, d.died_at;
    delete from outbox.died o
     where o.ctid = any (array(select x.ctid from outbox.died x where x.died_at < now() - interval '8 days'
                                order by x.died_at limit 100 for update skip locked));
    return null;
end
$$;

create trigger note_died after insert on outbox.dead referencing new table as died for each statement execute function outbox.note_died();

-- What was delivered into the archive and what was given up, by the hour, for a week. Nothing is kept of what a queue
-- deletes. A duration is from created_at to the acknowledgement's settlement.
create view outbox.by_hour as
    with delivered as (
        select a.queue, date_trunc('hour', a.archived_at) as hour, s.each,
               count(*) as events,
               avg(a.archived_at - a.created_at) filter (where isfinite(a.created_at)) as average,
               percentile_disc(0.99) within group (order by a.archived_at - a.created_at) filter (where isfinite(a.created_at)) as p99
          from outbox.archive a tablesample system (outbox.sample_of(outbox.archive_lately())) repeatable (0)
         cross join (select 100 / outbox.sample_of(outbox.archive_lately()) as each offset 0) s -- once, not for each hour
         where a.archived_at >= date_trunc('hour', now() - interval '7 days')
         group by 1, 2, 3
    ), failed as (
        select d.queue, date_trunc('hour', d.died_at) as hour, 100 / outbox.sample_of(array['outbox.died'::regclass]) as each,
               sum(d.events) as events
          from outbox.died d tablesample system (outbox.sample_of(array['outbox.died'::regclass])) repeatable (0)
         where d.died_at >= date_trunc('hour', now() - interval '7 days')
         group by 1, 2
    )
    select queue, hour, coalesce(round(d.events * d.each)::bigint, 0) as delivered, coalesce(round(f.events * f.each)::bigint, 0) as failed,
           d.average as average_duration, d.p99 as p99_duration, greatest(d.each, f.each) > 1 as estimated
      from delivered d full join failed f using (queue, hour)
     order by hour, queue;

comment on column outbox.by_hour.delivered is 'events of that hour that the archive has: of a queue that deletes, none';
comment on column outbox.by_hour.failed is 'events that became dead letters in that hour, each time they did, whatever has become of these since';

-- Who has what, and since when: the events that workers have, up to 1,000 of each queue, those whose term ends first; and each
-- session that holds keys: relays, and workers in the middle of a take(). Only members of pg_monitor see when the session's
-- transaction began. Among many leases it reads past the retries that are due before them. statement_timestamp() and not
-- clock_timestamp(), by which no index is read.
create view outbox.workers as
    select l.* from outbox.queue_names() q (queue)
     cross join lateral (
        select p.queue, p.worker, null::int as pid, case when not p.keyless then p.key end as key, p.taken_id as event_id,
               1::bigint as keys, p.taken_at as since, coalesce(p.resume_at, p.next_at) as expires_at
          from ((select * from outbox.parked o
                  where o.queue = q.queue and o.token is not null and o.next_at > statement_timestamp() and o.resume_at is null
                  order by o.next_at limit 1000)
                union all
                (select * from outbox.parked o -- whose keys are paused
                  where o.queue = q.queue and o.token is not null and o.resume_at > statement_timestamp()
                  order by o.resume_at limit 1000)) p
         order by 8 limit 1000) l
    union all
    select h.queue, a.application_name, h.pid, null, null, h.keys, a.xact_start, null
      from (select q.name as queue, l.classid, l.pid, count(*) as keys
              from pg_catalog.pg_locks l
              left join (select k.name, k.lock_class from outbox.queue k union select s.queue, s.lock_class from outbox.served s) q
                on l.classid::bigint = q.lock_class & 4294967295
             where l.locktype = 'advisory' and l.objsubid = 2 and l.granted
               and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
             group by 1, 2, 3) h
      join pg_catalog.pg_stat_activity a using (pid)
     where h.queue is not null or a.application_name = 'pgcourier';

revoke all on all functions in schema outbox from public;
