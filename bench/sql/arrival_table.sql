-- Who came when: events leave their table.
create unlogged table public.arrivals (id bigint, created_at timestamptz);
