-- The tables of events and of what the relays remember, as migration 001 makes them, and each bench its own.
-- :state   the schema

-- The ready-made :state. `id` is the order: one sequence, cache 1, because a session that caches ids commits 2 after 33.
--
-- Keys are bytes: nobody sorts them for people, so the indexes on them need not compare by the rules of a language, nor be
-- built anew when those change with the operating system. (That on :state.parked has to be.)
create table :state.events (
    id            bigint generated always as identity (cache 1) primary key,
    event_id      uuid not null default pg_catalog.gen_random_uuid(),
    aggregatetype text,
    aggregateid   text collate "C", -- the key; null: no order wanted
    type          text,
    payload       jsonb,
    headers       jsonb,
    traceparent   text,
    -- Not now(): that is the start of the transaction, so a transaction of a minute would look like a minute of lag,
    -- and all events of one transaction would tie.
    created_at    timestamptz not null default pg_catalog.clock_timestamp(),
    not_before    timestamptz, -- null: at once
    dedupe_key    text collate "C", -- of events that have one, one at a time waits
    again_after   bigint -- this event was under way when the row came again: where there is no order, it has to be gone first
);

create index events_key on :state.events (aggregateid, id);
create unique index events_dedupe on :state.events (dedupe_key) where dedupe_key is not null;

-- A queue's table turns over completely many times an hour: vacuum by count, not by share.
alter table :state.events set (
    autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_threshold = 50000, autovacuum_analyze_scale_factor = 0.05);

-- One row per key that waits, so later events of the key wait too. An event without a key waits alone.
create table :state.parked (
    queue           text not null,
    key             text not null,                 -- as text; '' with keyless = true
    event_id        bigint not null,               -- the head: the event that failed
    keyless         boolean not null default false,
    attempts        int not null default 0,
    next_at         timestamptz not null,          -- 'infinity': closed until somebody opens it, or paused
    last_error      text not null default '',
    first_failed_at timestamptz not null default pg_catalog.now(), -- of this event; of one that waits for another: when it came to wait
    updated_at      timestamptz not null default pg_catalog.now(),
    head            jsonb,
    after_id        bigint,      -- it waits for this event, which has to be done first: see settle_park.sql and after_look.sql
    resume_at       timestamptz, -- not null: somebody has paused the key; what next_at is when it is resumed
    -- A lease (009_workers_text.sql): until next_at the event taken_id is with a worker or a relay. Whoever writes the entry for another
    -- reason than a pause takes the token away.
    token           uuid,
    worker          text,
    taken_id        bigint,
    taken_at        timestamptz,
    lease           interval,
    -- A relay's lease ends with this backend, too; null: with its term alone.
    backend_pid     int,
    backend_start   timestamptz
);

create unique index parked_key on :state.parked (queue, key) where not keyless;
create unique index parked_event on :state.parked (queue, event_id) where keyless;
create index parked_next on :state.parked (queue, next_at);
create index parked_after on :state.parked (queue, after_id) where after_id is not null;
create unique index parked_token on :state.parked (token) where token is not null;
create index parked_backend on :state.parked (queue, backend_pid, backend_start) where token is not null and backend_pid is not null;
-- For those who ask (015_answers.sql): few that have failed, or are paused, among a million that wait.
create index parked_failed on :state.parked (queue, next_at) where token is null and (attempts > 0 or last_error <> '');
create index parked_paused on :state.parked (queue) where resume_at is not null;
create index parked_paused_lease on :state.parked (queue, resume_at) where resume_at is not null and token is not null;

alter table :state.parked set (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.05);

-- Events taken out of their queue after the last attempt. `original` is the whole row as row_to_json gives it; json and
-- not jsonb, so that a json payload keeps its spacing, its key order and its duplicate keys.
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
