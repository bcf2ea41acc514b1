-- The pauses of queues and keys, as migration 008 makes the table, and each bench its own.
-- :state   the schema

-- While a queue has a row here its relays claim nothing; they look twice a second. A key has one beside its entry in
-- outbox.parked, which is what keeps its events back.
create table :state.paused (
    queue  text not null,
    key    text, -- as text; null: the whole queue
    since  timestamptz not null default pg_catalog.clock_timestamp(),
    by     text not null default session_user,
    reason text not null default ''
);

create unique index paused_queue on :state.paused (queue) where key is null;
create unique index paused_key on :state.paused (queue, key) where key is not null;
create index paused_since on :state.paused (queue, since) where key is not null;
