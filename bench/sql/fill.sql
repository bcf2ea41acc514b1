-- The rows of every drain, made once: payloads of exactly 300 bytes of JSON text, keys that take turns.
-- :events :keys   how many
create table filled as
select 'order-' || 1 + n % :keys as aggregateid, 'order.changed' as type,
       (head || rpad('', 300 - length(head) - 2, 'x') || '"}')::jsonb as payload
from generate_series(0, :events - 1) as n,
     lateral (select format('{"order": %s, "total": "%s", "note": "', 1 + n % :keys, n * 1.25) as head) as h;
