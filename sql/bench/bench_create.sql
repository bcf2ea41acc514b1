-- The schema of one bench: the table that schema/001_tables.sql makes as outbox.events, with its indexes and settings, and
-- the tables that a relay works with. tests/integration/commands/test_bench_command.py holds them together.
-- :state   the schema's name
begin;
create schema :state;
comment on schema :state is 'pgcourier bench';
create table :state.events (
    id            bigint generated always as identity (cache 1) primary key,
    event_id      uuid not null default pg_catalog.gen_random_uuid(),
    aggregatetype text,
    aggregateid   text collate "C",
    type          text,
    payload       jsonb,
    headers       jsonb,
    traceparent   text,
    created_at    timestamptz not null default pg_catalog.clock_timestamp(),
    not_before    timestamptz,
    dedupe_key    text collate "C",
    again_after   bigint
);
create index events_key on :state.events (aggregateid, id);
create unique index events_dedupe on :state.events (dedupe_key) where dedupe_key is not null;
alter table :state.events set (
    autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_threshold = 50000, autovacuum_analyze_scale_factor = 0.05);
create table :state.parked (
    queue           text not null,
    key             text not null,
    event_id        bigint not null,
    keyless         boolean not null default false,
    attempts        int not null default 0,
    next_at         timestamptz not null,
    last_error      text not null default '',
    first_failed_at timestamptz not null default pg_catalog.now(),
    updated_at      timestamptz not null default pg_catalog.now(),
    head            jsonb,
    after_id        bigint,
    resume_at       timestamptz,
    token           uuid,
    worker          text,
    taken_id        bigint,
    taken_at        timestamptz,
    lease           interval,
    backend_pid     int,
    backend_start   timestamptz
);
create unique index parked_key on :state.parked (queue, key) where not keyless;
create unique index parked_event on :state.parked (queue, event_id) where keyless;
create index parked_next on :state.parked (queue, next_at);
create index parked_after on :state.parked (queue, after_id) where after_id is not null;
create unique index parked_token on :state.parked (token) where token is not null;
create index parked_backend on :state.parked (queue, backend_pid, backend_start) where token is not null and backend_pid is not null;
create index parked_failed on :state.parked (queue, next_at) where token is null and (attempts > 0 or last_error <> '');
create index parked_paused on :state.parked (queue) where resume_at is not null;
create index parked_paused_lease on :state.parked (queue, resume_at) where resume_at is not null and token is not null;
alter table :state.parked set (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.05);
create table :state.paused (
    queue  text not null,
    key    text,
    since  timestamptz not null default pg_catalog.clock_timestamp(),
    by     text not null default session_user,
    reason text not null default ''
);
create unique index paused_queue on :state.paused (queue) where key is null;
create unique index paused_key on :state.paused (queue, key) where key is not null;
create index paused_since on :state.paused (queue, since) where key is not null;
create table :state.dead (
    dead_id      bigint generated always as identity primary key,
    queue        text not null,
    event_id     bigint not null,
    key          text,
    type         text,
    reason       text not null,
    attempts     int not null,
    source_table text not null,
    original     json not null,
    created_at   timestamptz,
    died_at      timestamptz not null default pg_catalog.statement_timestamp()
);
create index dead_key on :state.dead (queue, key);
create index dead_event on :state.dead (queue, event_id);
create index dead_died on :state.dead (queue, died_at);
commit;
