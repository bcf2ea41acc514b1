-- 003_producers: ids that commit in order, per key.
--
-- Relays deliver a key's events in id order, which is commit order only if producers of one key take turns. A service
-- that locks the order's row before it inserts the event has that already. For the others: publish(), or the trigger.
-- Both take an advisory lock on the key and only then draw the id; a default drawn first would be older than the wait.
--
-- The lock is (525316013, hashtext(key)): FNV-1a of "pgcourier:producer", a class of its own, so that producers never
-- wait for deliveries. A transaction that publishes for several keys takes several locks: let it go through them in
-- sorted order, or two such transactions may deadlock (one of them then gets an error; nothing is lost).

-- What runs once an event has no `set search_path`, which would cost 12 us each time: every name in it is
-- qualified, so that the producer's own path changes nothing.

-- plpgsql and not a single INSERT: statement by statement, the lock is granted before the INSERT evaluates the identity.
create function outbox.publish(
    key text, type text, payload jsonb,
    aggregatetype text default null, headers jsonb default null, traceparent text default null,
    not_before timestamptz default null, dedupe_key text default null, on_duplicate text default 'ignore')
    returns bigint
    language plpgsql
as $$
declare
    new_id bigint;
begin
    if pg_catalog.jsonb_typeof(publish.headers) operator(pg_catalog.<>) 'object' then
        raise exception 'publish: headers are a JSON object, not %', pg_catalog.left(publish.headers::pg_catalog.text, 80)
            using errcode = 'invalid_parameter_value', hint = 'headers => ''{"name": "value"}''.';
    end if;
    if (publish.on_duplicate operator(pg_catalog.=) 'ignore') is not true then
        if (publish.on_duplicate operator(pg_catalog.=) any ('{replace,again}'::pg_catalog.text[])) is not true then
            raise exception 'publish: on_duplicate is "ignore", "replace" or "again", not %', coalesce(pg_catalog.quote_literal(publish.on_duplicate), 'null')
                using errcode = 'invalid_parameter_value', hint = 'Without it, a second event is ignored while the first one waits.';
        end if;
        if publish.dedupe_key is null then
            raise exception 'publish: on_duplicate => % is for events with a dedupe_key, and this one has none', pg_catalog.quote_literal(publish.on_duplicate)
                using errcode = 'null_value_not_allowed', hint = 'Give as dedupe_key what it has in common with its duplicates, or leave on_duplicate out.';
        end if;
    end if;
    if publish.dedupe_key is not null then
        return outbox.publish_once(publish.key, publish.type, publish.payload, publish.aggregatetype, publish.headers,
                                   publish.traceparent, publish.not_before, publish.dedupe_key, publish.on_duplicate);
    end if;
    if publish.key is not null then
        perform pg_catalog.pg_advisory_xact_lock(525316013, pg_catalog.hashtext(publish.key));
    end if;
    insert into outbox.events as e (aggregatetype, aggregateid, type, payload, headers, traceparent, not_before)
    values (publish.aggregatetype, publish.key, publish.type, publish.payload, publish.headers, publish.traceparent, publish.not_before)
    returning e.id into new_id;
    return new_id;
end
$$;

-- Refuses a snapshot that is older than the locks that are looked at.
create function outbox.check_isolation(what text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception '%: the isolation level has to be read committed, and is %', what, current_setting('transaction_isolation')
            using errcode = 'invalid_transaction_state',
                  hint = 'What is leased after its snapshot would be missed. begin isolation level read committed; or set default_transaction_isolation = ''read committed'';';
    end if;
end
$$;

-- What publish() does for an event of which one waits already, by its dedupe_key. Two of them are never under way at once: an
-- event without a key gets the dedupe_key as its key; and where there is no order, again_after names the one that goes first.
-- Relays and take() look there, so it holds for whoever begins to serve the table later, too. What takes the place of
-- one that waits has to wait for the same.
--
-- `replace` and `again` never write what is delivered into a row that somebody may have read: a relay that delivers it takes
-- it out of the table by its id, whatever is in it by then. A row that waits is deleted, and the new one has an id of its own.
-- It waits when nobody has its row, its key or itself locked, and there is no lease on the key in a queue over this table, for a relay's covers more
-- events than one; one that is under way is left to whoever has it, and with `again` is no longer the one that waits.
create function outbox.publish_once(
    key text, type text, payload jsonb, aggregatetype text, headers jsonb, traceparent text, not_before timestamptz,
    dedupe_key text, on_duplicate text)
    returns bigint
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    new_key text := coalesce(publish_once.key, publish_once.dedupe_key);
    free    boolean;
    new_id  bigint;
    old     outbox.events;
    behind  bigint; -- the event that the new one waits for
    kept    boolean;
    rounds  int := 0; -- that have neither put the event in nor found the one that waits
begin
    if on_duplicate is distinct from 'ignore' then
        perform outbox.check_isolation(format('publish(…, on_duplicate => %L)', on_duplicate));
    end if;
    perform pg_advisory_xact_lock(525316013, hashtext(new_key));
    loop
        insert into outbox.events as e (aggregatetype, aggregateid, type, payload, headers, traceparent, not_before, dedupe_key, again_after)
        values (publish_once.aggregatetype, new_key, publish_once.type, publish_once.payload, publish_once.headers,
                publish_once.traceparent, publish_once.not_before, publish_once.dedupe_key, behind)
            on conflict (dedupe_key) where dedupe_key is not null do nothing
        returning e.id into new_id;
        if found then
            return new_id;
        end if;
        select e.* into old from outbox.events e where e.dedupe_key = (publish_once.dedupe_key collate "C");
        if not found then
            rounds := rounds + 1;
            if rounds = 100 then
                raise exception 'publish: outbox.events does not take the event with the dedupe_key %: a trigger keeps it out, or changes its dedupe_key',
                                quote_literal(publish_once.dedupe_key)
                    using errcode = 'object_not_in_prerequisite_state', hint = 'See the triggers of outbox.events.';
            end if;
            continue; -- delivered in between
        end if;
        if on_duplicate = 'ignore' then
            return null;
        end if;
        -- The key's lock, and the event's own, which a queue without an order takes: of every class that anybody here has said.
        select bool_and(pg_try_advisory_xact_lock(c.class, outbox.lock_hash('text', old.aggregateid, old.id))
                        and pg_try_advisory_xact_lock(c.class, outbox.lock_hash('text', null, old.id))) into free
          from (select q.lock_class from outbox.queue q where q.tbl = 'outbox.events'::regclass
                 union select s.lock_class from outbox.served s where s.tbl = 'outbox.events'::regclass and s.lock_class is not null
                 union select outbox.lock_class_of('outbox.events')) c (class);
        -- A statement of its own, in a transaction that is read committed: it sees the leases of whoever had the lock before.
        free := free and not exists (select from outbox.parked p
                                      where p.queue in (select outbox.queues_of_events(true)) and p.token is not null
                                        and (p.keyless and p.event_id = old.id or not p.keyless and p.key = (old.aggregateid collate "default"))
                                        and coalesce(p.resume_at, p.next_at) > clock_timestamp());
        -- The row last: of an event that is being delivered it would keep the relay from deleting it until we commit.
        if free then
            perform from outbox.events e where e.id = old.id for update skip locked;
            free := found;
        end if;
        if free then
            delete from outbox.events e where e.id = old.id;
            kept := not found;
            behind := old.again_after;
            delete from outbox.parked p where p.queue in (select outbox.queues_of_events(false)) and p.keyless and p.event_id = old.id;
            -- The key may have waited for it to be due: as look_again().
            update outbox.parked p
               set next_at = clock_timestamp(), updated_at = clock_timestamp()
             where p.queue in (select outbox.queues_of_events(false)) and p.key = (old.aggregateid collate "default") and not p.keyless and p.event_id = old.id
               and p.attempts = 0 and p.last_error = '' and p.token is null and p.resume_at is null
               and p.next_at > clock_timestamp();
        elsif on_duplicate = 'again' then
            update outbox.events e set dedupe_key = null where e.id = old.id;
            kept := exists (select from outbox.events e where e.id = old.id and e.dedupe_key = old.dedupe_key); -- else it is done
            behind := old.id;
        else
            return null;
        end if;
        if kept then
            raise exception 'publish: a trigger of outbox.events keeps the event with the dedupe_key % as it is', quote_literal(old.dedupe_key)
                using errcode = 'object_not_in_prerequisite_state', hint = 'See the triggers of outbox.events.';
        end if;
    end loop;
end
$$;

-- The sequence behind a column's default, owned or not; null if there is none.
create function outbox.sequence_of(tbl regclass, column_name name) returns regclass
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select s.oid::regclass
      from pg_attribute a
      join pg_depend d on (d.classid = 'pg_attrdef'::regclass
                           and d.objid in (select x.oid from pg_attrdef x where x.adrelid = a.attrelid and x.adnum = a.attnum)
                           and d.refclassid = 'pg_class'::regclass)
                       or (d.classid = 'pg_class'::regclass and d.deptype = 'i'
                           and d.refobjid = a.attrelid and d.refobjsubid = a.attnum)
      join pg_class s on s.relkind = 'S'
                     and s.oid = case when d.classid = 'pg_class'::regclass then d.objid else d.refobjid end
     where a.attrelid = tbl and a.attname = column_name and not a.attisdropped
     limit 1
$$;

-- Puts the trigger on a table, for plain INSERTs there. The column's default was drawn before any trigger ran, so the id
-- is drawn again once the lock is ours: each insert costs two ids.
--
-- The trigger's function is made for this table, with its names written in: looking them up for each row would cost more
-- than the insert itself. So a column or sequence with a new name has to be told here again.
--
-- Whoever may insert there must be able to draw from the sequence: an identity column does not ask for that right,
-- nextval() does, so it is granted to the roles that have INSERT now.
create function outbox.install_ordering(tbl regclass, key_column name, id_column name default 'id') returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    sequence regclass := outbox.sequence_of(tbl, id_column);
    orderer  name := 'order_by_key_' || tbl::oid;
    grantee  regrole;
begin
    if sequence is null then
        raise exception 'install_ordering: no sequence feeds %.%', tbl, quote_ident(id_column)
            using errcode = 'object_not_in_prerequisite_state',
                  hint = coalesce('Give as id_column one that has a sequence: '
                                  || (select string_agg(quote_ident(a.attname), ', ' order by a.attnum) from pg_attribute a
                                       where a.attrelid = tbl and a.attnum > 0 and not a.attisdropped and outbox.sequence_of(tbl, a.attname) is not null)
                                  || '.', 'The id has to be drawn from one: declare it as bigint generated by default as identity.');
    end if;
    if not exists (select from pg_attribute a where a.attrelid = tbl and a.attname = key_column and not a.attisdropped)
    then
        raise exception 'install_ordering: % has no column %', tbl, coalesce(quote_ident(key_column), 'null')
            using errcode = 'undefined_column',
                  hint = format('Give the column of the key, which is one of: %s.',
                                (select string_agg(quote_ident(a.attname), ', ' order by a.attnum) from pg_attribute a
                                  where a.attrelid = tbl and a.attnum > 0 and not a.attisdropped));
    end if;
    perform outbox.uninstall_ordering(tbl);
    -- A database that was restored from a dump has the functions of its tables by the numbers that they had before.
    while exists (select from pg_proc p where p.proname = orderer and p.pronamespace = 'outbox'::regnamespace) loop
        orderer := orderer || '_';
    end loop;
    -- `pgcourier dead retry` puts an event back under the id it had: keep_id.
    execute format('create function outbox.%I() returns trigger language plpgsql as %L', orderer, format($body$
begin
    if pg_catalog.current_setting('outbox.keep_id', true) operator(pg_catalog.=) 'on' then
        return new;
    end if;
    if new.%1$I is not null then
        perform pg_catalog.pg_advisory_xact_lock(525316013, pg_catalog.hashtext(new.%1$I::pg_catalog.text));
        new.%2$I := pg_catalog.nextval(%3$L);
    end if;
    return new;
end
$body$, key_column, id_column, sequence::text));
    execute format('revoke all on function outbox.%I() from public', orderer);
    -- Triggers fire in the order of their names, and the key must be final when it is locked: hence zz_.
    execute format('create trigger zz_outbox_order_by_key before insert on %s for each row execute function outbox.%I()',
                   tbl, orderer);
    for grantee in
        select distinct x.grantee::regrole from pg_class c, aclexplode(c.relacl) x
         where c.oid = tbl and x.privilege_type = 'INSERT' and x.grantee <> 0
    loop
        execute format('grant usage on sequence %s to %s', sequence, grantee);
    end loop;
    perform outbox.install_wake(tbl);
end
$$;

create function outbox.uninstall_ordering(tbl regclass) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    orderer regprocedure;
begin
    select t.tgfoid into orderer from pg_trigger t where t.tgrelid = tbl and t.tgname = 'zz_outbox_order_by_key';
    if found then
        execute format('drop trigger zz_outbox_order_by_key on %s', tbl);
        execute format('drop function %s', orderer);
    end if;
end
$$;

revoke all on function outbox.publish(text, text, jsonb, text, jsonb, text, timestamptz, text, text),
    outbox.publish_once(text, text, jsonb, text, jsonb, text, timestamptz, text, text), outbox.check_isolation(text),
    outbox.sequence_of(regclass, name), outbox.install_ordering(regclass, name, name), outbox.uninstall_ordering(regclass)
    from public;
