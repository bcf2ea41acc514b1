-- The events table exactly as the article has it; nothing is added for the relay.
create table events (
    id bigserial primary key,
    order_id bigint,
    status text not null,
    created_at timestamptz not null default now()
);
create index on events (created_at);
create index on events (order_id);

-- The producers' own data. step: how many of its statuses the order has been through. The fillfactor leaves room to
-- update a row where it stands.
create table orders (id bigint primary key, step int not null default 0) with (fillfactor = 50);
