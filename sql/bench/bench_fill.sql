-- The events of one drain: keys that take turns, payloads of exactly $3 bytes of JSON text. The filler is hexadecimal digits;
-- in large payloads, which the table compresses, they do not repeat: or rows would become much smaller than real ones.
-- :state    the schema of a bench
-- $1 bigint events, $2 bigint keys, $3 int bytes of payload
insert into :state.events (aggregateid, type, payload)
select 'bench-' || (1 + s.n % $2::bigint), 'pgcourier.bench',
       (h.head || case when $3::int < 1800 then pg_catalog.rpad('', h.room, d.digits) else (
           select pg_catalog.left(pg_catalog.string_agg(pg_catalog.encode(
                      pg_catalog.sha256(pg_catalog.convert_to(d.digits || i, 'UTF8')), 'hex'), ''), h.room)
             from pg_catalog.generate_series(0, $3::int / 64) as i) end || '"}')::jsonb
  from (select pg_catalog.generate_series(0, $1::bigint - 1) as n) as s,
       lateral (select '{"n": ' || s.n || ', "bench": "' as head, $3::int - 20 - pg_catalog.length(s.n::text) as room) as h,
       lateral (select pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(s.n::text, 'UTF8')), 'hex') as digits) as d
