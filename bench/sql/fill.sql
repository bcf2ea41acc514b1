-- Rows to copy from, made once: payloads of exactly 300 bytes of JSON text.
-- :rows   how many
create table filled as
select n, (head || rpad('', 300 - length(head) - 2, 'x') || '"}')::jsonb as payload
from generate_series(0, :rows - 1) as n,
     lateral (select format('{"order": %s, "total": "%s", "note": "', 1 + n, n * 1.25) as head) as h;
