-- 002_archive: delivered events, kept by day, so that old ones go by dropping a table.

-- No index: an archive is written once per event and read seldom. Build one on the partitions that are closed if you
-- look things up: create index on outbox.archive_20261121 (queue, key, event_id);
create table outbox.archive (
    queue       text not null,
    event_id    bigint not null,
    key         text,
    archived_at timestamptz not null default statement_timestamp(), -- the transaction is as old as its claim
    created_at  timestamptz, -- null: the queue maps none
    original    json not null
) partition by range (archived_at);

-- Takes whatever no day takes, so that settling never fails because a partition is missing.
create table outbox.archive_default partition of outbox.archive default;

-- Until the end of the transaction, locks are waited for as long as the caller's lock_timeout says, and no longer than this.
create function outbox.wait_at_most(given text, most interval) returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    select set_config('lock_timeout', (extract(epoch from least(most, nullif(given::interval, interval '0'))) * 1000)::bigint::text, true)
$$;

revoke all on function outbox.wait_at_most(text, interval) from public;

-- Makes the partitions archive_YYYYMMDD (UTC days) from today to days_ahead; returns how many it made. Relays call it
-- at start and once a day, at the same time as others: they take turns.
--
-- A partition is made apart and then attached, because ATTACH lets inserts into the other days go on, and CREATE ...
-- PARTITION OF does not. Rows of that day which are already in the default partition are moved first; without that
-- ATTACH would be refused.
create function outbox.archive_prepare(days_ahead int default 7) returns int
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
as $$
declare
    given constant text := current_setting('lock_timeout');
    today date := current_date;
    day   date;
    part  text;
    made  int := 0;
begin
    if days_ahead is null or days_ahead not between 0 and 400 then
        raise exception 'archive_prepare: days_ahead must be between 0 and 400, not %', days_ahead
            using errcode = 'invalid_parameter_value', hint = 'The default is 7.';
    end if;
    perform outbox.wait_at_most(given, interval '3 s');
    -- Class and number are FNV-1a of "pgcourier:archive" and 0.
    perform pg_advisory_xact_lock(662116619, 0);
    for day in select today + n from generate_series(0, days_ahead) n loop
        part := 'archive_' || to_char(day, 'YYYYMMDD');
        -- Not to_regclass(): its cache may not have heard yet of what the one before us in the lock's queue made.
        continue when exists (select from pg_class c where c.relname = part
                                 and c.relnamespace = (select n.oid from pg_namespace n where n.nspname = 'outbox'));
        execute format('create table outbox.%I (like outbox.archive including defaults including constraints)', part);
        lock table outbox.archive_default in access exclusive mode;
        execute format(
            'with late as (delete from outbox.archive_default where archived_at >= %L and archived_at < %L returning *)'
            ' insert into outbox.%I select * from late', day::timestamptz, (day + 1)::timestamptz, part);
        execute format('alter table outbox.archive attach partition outbox.%I for values from (%L) to (%L)',
                       part, day::timestamptz, (day + 1)::timestamptz);
        made := made + 1;
    end loop;
    perform set_config('lock_timeout', given, true);
    return made;
end
$$;

revoke all on function outbox.archive_prepare(int) from public;

select outbox.archive_prepare();
