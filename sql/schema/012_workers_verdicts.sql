-- 012_workers_verdicts: what becomes of events that were taken by SQL.

-- What became of leased events is written down: they leave their table. One that somebody updated while it was deleted has
-- stayed, as it is found by its place; it is deleted by the next try, which sees where it is now.
create function outbox.remove_leased(q outbox.queue, tokens uuid[], reason text, responses text[]) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    ids  bigint[] := (select array_agg(p.taken_id) from outbox.parked p where p.token = any (tokens));
    removed bigint;
    undeleted bigint;
begin
    for try in 1..5 loop
        begin
            execute format('select outbox.queue_%s_remove($1, $2, $3, $4)', q.number) using tokens, ids, reason, responses into removed;
            exit when removed = cardinality(ids);
            execute format('select e.%1$I from %2$s e where e.%1$I = any ($1) and (%3$s) limit 1', q.id_column, q.tbl,
                           coalesce(q.condition, 'true')) using ids into undeleted;
            exit when undeleted is null;
            raise exception 'event % is still in % after DELETE: a trigger or policy keeps it, or it is updated all the time', undeleted, q.tbl
                using errcode = 'object_not_in_prerequisite_state', hint = 'Nothing was changed; mend what keeps it, and try once more.';
        exception
            when object_not_in_prerequisite_state then
                if undeleted is null or try = 5 then
                    raise;
                end if;
                undeleted := null;
        end;
    end loop;
end
$$;

-- Ends leases by one verdict and returns how many of them were still there: the others change nothing. `what` is the function that
-- was called, where it is not called like the verdict.
create function outbox.end_leases(verdict text, tokens uuid[], error text default null, fatal boolean default false,
    term interval default null, responses text[] default null, what text default null) returns int
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_sort = off
    set jit = off
as $$
declare
    held  uuid[];
    ended int := 0;
    used  outbox.queue[];
    q     outbox.queue;
    mine  uuid[];
    last  uuid[];
    given text[]; -- of `last`
begin
    perform outbox.check_worker_call();
    if tokens is null or array_position(tokens, null) is not null then
        raise exception '%: a token is null', coalesce(what, verdict)
            using errcode = 'null_value_not_allowed', hint = 'Give what take() returned as token.';
    end if;
    if cardinality(tokens) > 1000 then
        raise exception '%: at most 1000 tokens, not %', coalesce(what, verdict), cardinality(tokens)
            using errcode = 'invalid_parameter_value', hint = 'Each takes a slot in the lock table of the server until you commit.';
    end if;
    if cardinality(responses) <> cardinality(tokens) then
        raise exception '%: % responses to % tokens', coalesce(what, verdict), cardinality(responses), cardinality(tokens)
            using errcode = 'invalid_parameter_value', hint = 'Give one for each, or null.';
    end if;
    select array_agg(outbox.queue_use(l.name)) into used
      from (select distinct w.queue as name from unnest(tokens) t (token)
             cross join lateral (select p.queue from outbox.parked p where p.token between t.token and t.token order by p.token offset 0) w offset 0) l;
    -- While a term lasts nobody takes the key over, and its lock may be with a relay that found it busy. When it is over,
    -- whoever has the lock may be delivering the event.
    select array_agg(p.token) into held
      from (select w.token, coalesce(w.resume_at, w.next_at) as over_at,
                   pg_try_advisory_xact_lock(x.lock_class, outbox.lock_hash(x.key_type, case when not w.keyless then w.key end, w.event_id)) as got
              from unnest(tokens) t (token)
             cross join lateral (select l.* from outbox.parked l where l.token between t.token and t.token order by l.token offset 0) w
              join unnest(used) x on x.name = w.queue offset 0) p
     where p.got or p.over_at > clock_timestamp();
    perform from outbox.parked p where p.token = any (held) order by p.token for update;
    foreach q in array coalesce(used, '{}') loop
        select array_agg(p.token),
               array_agg(p.token) filter (where verdict = 'done' or verdict = 'fail' and (fatal or p.attempts + 1 >= q.max_attempts))
          into mine, last
          from outbox.parked p where p.token = any (held) and p.queue || '' = q.name; -- by their tokens, not all of the queue
        continue when mine is null;
        ended := ended + cardinality(mine);
        given := case when responses is not null then (
            select array_agg(r.response order by l.place) from unnest(last) with ordinality l (token, place)
              join (select distinct on (t.token) t.token, t.response from unnest(tokens, responses) t (token, response)) r on r.token = l.token) end;
        if q.then_payload <> 'response' and array_remove(given, null) <> '{}' then
            raise exception '%: queue % hands no response on', coalesce(what, verdict), quote_literal(q.name)
                using errcode = 'invalid_parameter_value', hint = 'Leave it out, or have queue_set(…, then_payload => ''response'').';
        end if;
        if last is not null and (verdict = 'done' or q.on_exhausted = 'dead_letter') then
            perform outbox.remove_leased(q, last, case when verdict = 'fail' then coalesce(error, 'failed') end, given);
        end if;
        update outbox.parked p
           set next_at = case when p.resume_at is null then w.until else p.next_at end, -- a pause stays one
               resume_at = case when p.resume_at is not null then w.until end,
               attempts = case when w.another_first then 0 else p.attempts + (verdict = 'fail')::int end,
               event_id = case when verdict = 'fail' and p.token = any (last) then p.taken_id else p.event_id end,
               first_failed_at = case when verdict = 'fail' and p.attempts = 0 then clock_timestamp() else p.first_failed_at end,
               last_error = case when w.another_first then '' when verdict = 'fail' then coalesce(error, 'failed') else p.last_error end,
               token = case when verdict = 'extend' then p.token end,
               lease = coalesce(term, p.lease),
               updated_at = clock_timestamp()
          from (select t.token, t.another_first,
                       case when verdict = 'extend' then clock_timestamp() + coalesce(term, t.lease)
                                     when verdict = 'release' or t.another_first then clock_timestamp()
                                     when t.token = any (last) then 'infinity'
                                     else clock_timestamp() + interval '1 ms' + random() * greatest(interval '0',
                                         least(q.retry_base * power(2, least(t.attempts, 30)), q.retry_max) - interval '1 ms') end as until
                  from (select l.*, -- another was put back in front of it, or has become due: that is next, and has no failures
                               l.event_id <> l.taken_id and verdict in ('fail', 'release') and (l.token = any (last)) is not true as another_first
                          from outbox.parked l where l.token = any (mine)) t) w
         where p.token = w.token;
    end loop;
    perform nextval('outbox.late_verdicts') from generate_series(1, (select count(distinct t) from unnest(tokens) t) - ended);
    return ended;
end
$$;

-- The key of an event that cannot leave its table, and whose attempts are over, is closed, so that no call of take() fails
-- because of it.
create function outbox.close_leased(token uuid, error text) returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    update outbox.parked p
       set next_at = 'infinity', resume_at = case when p.resume_at is not null then 'infinity'::timestamptz end,
           attempts = p.attempts + 1, last_error = left(error, 1000), event_id = p.taken_id, token = null, updated_at = clock_timestamp(),
           first_failed_at = case when p.attempts = 0 then clock_timestamp() else p.first_failed_at end
     where p.token = close_leased.token
$$;

-- The constraints of these tables that are looked at when a transaction commits, as names for SET CONSTRAINTS. Not all: what a
-- worker's transaction has put off elsewhere is its own. But ALL where one is in a schema that we may not use, and so not name.
-- `again` are those of them that can be put off again: a name stands for all constraints of its schema that have it, and one
-- that cannot be put off, or is not by itself, is to stay as it is.
create function outbox.deferred_constraints(tables regclass[], out now text, out again text)
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select case when bool_or(not d.ours) then 'all' else coalesce(string_agg(d.name, ', '), '') end,
           case when bool_or(not d.ours) then '' else coalesce(string_agg(d.name, ', ') filter (where d.alike), '') end
      from (select format('%I.%I', n.nspname, c.conname) as name, has_schema_privilege(n.oid, 'usage') as ours,
                   not exists (select from pg_constraint o where o.connamespace = c.connamespace and o.conname = c.conname
                                                             and not o.condeferred) as alike
              from unnest(tables) a (tbl)
              cross join lateral (select a.tbl::oid union select p.relid from pg_partition_tree(a.tbl) p) t (tbl)
              join pg_trigger g on g.tgrelid = t.tbl and g.tginitdeferred
              join pg_constraint c on c.oid = g.tgconstraint
              join pg_namespace n on n.oid = c.connamespace
             group by n.oid, n.nspname, c.conname, c.connamespace) d
$$;

-- Looks at them now, and puts off again what it may. Of ALL, some may not have been put off.
create function outbox.look_at_constraints(now text, again text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if now <> '' then
        execute format('set constraints %s immediate', now);
    end if;
    if again <> '' then
        execute format('set constraints %s deferred', again);
    end if;
end
$$;

-- The verdicts. Each is true when it counted, and false when the lease was over and the event is somebody else's.

-- With a response where the queue hands that on as payload.
create function outbox.done(token uuid, response text default null) returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
as $$ select outbox.end_leases('done', array[token], responses => case when response is not null then array[response] end) = 1 $$;

-- For many at once; how many counted.
create function outbox.done_all(tokens uuid[], responses text[] default null) returns int
    language sql security definer
    set search_path = pg_catalog, pg_temp
as $$ select outbox.end_leases('done', tokens, responses => responses, what => 'done_all') $$;

-- It is tried again after a wait; after the last attempt, or when it is fatal, it is given up as the queue says.
create function outbox.fail(token uuid, error text, fatal boolean default false) returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
as $$ select outbox.end_leases('fail', array[token], left(coalesce(error, 'failed'), 1000), coalesce(fatal, false)) = 1 $$;

-- The term begins anew; by default it is as long as the last one that was given.
create function outbox.extend(token uuid, lease interval default null) returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if lease is not null then
        perform outbox.check_lease('extend', lease);
    end if;
    return outbox.end_leases('extend', array[token], term => lease) = 1;
end
$$;

-- Gives it back untouched: no attempt is counted.
create function outbox.release(token uuid) returns boolean
    language sql security definer
    set search_path = pg_catalog, pg_temp
as $$ select outbox.end_leases('release', array[token]) = 1 $$;

-- Who has what, since when and for how long; those with `over` were not taken over yet. A pause of the key does not prolong a lease.
create view outbox.status_leases as
    select queue, case when not keyless then key end as key, taken_id as event_id, worker, taken_at, coalesce(resume_at, next_at) as expires_at,
           coalesce(resume_at, next_at) <= clock_timestamp() as over, attempts + 1 as attempt
      from outbox.parked
     where token is not null;

create view outbox.status_late_verdicts as
    select last_value + is_called::int as verdicts from outbox.late_verdicts;

revoke all on all functions in schema outbox from public;
