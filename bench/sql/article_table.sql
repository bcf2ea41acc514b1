-- The article's table, made once, with a payload of 300 bytes besides.
create table public.events (
    id         bigint generated always as identity primary key,
    order_id   bigint not null,
    status     text not null,
    payload    jsonb not null,
    created_at timestamptz not null default clock_timestamp()
);
create index on public.events (order_id, id);
