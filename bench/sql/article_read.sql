-- The key's oldest event; the article reads its newest.
-- $1 bigint order
select id, status, payload, created_at from public.events where order_id = $1::bigint order by id limit 1
