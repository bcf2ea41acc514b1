-- Rows to copy from, made once: payloads of exactly 300 bytes of JSON text. The filler is hexadecimal digits that do not
-- repeat: a producer to Kafka compresses what it sends, and real events would not shrink to a tenth.
-- :rows   how many
create table filled as
select n, (head || left(digits, 300 - length(head) - 2) || '"}')::jsonb as payload
from generate_series(0, :rows - 1) as n,
     lateral (select format('{"order": %s, "total": "%s", "note": "', 1 + n, n * 1.25) as head, n::text as seed) as h,
     lateral (select encode(sha512(('a' || seed)::bytea) || sha512(('b' || seed)::bytea), 'hex') as digits) as d;
