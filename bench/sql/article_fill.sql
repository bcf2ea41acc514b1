-- Its rows before each run: orders that take turns.
-- :count   how many: a multiple of what `filled` has, or less than that
-- :keys    how many orders
truncate public.events restart identity;
insert into public.events (order_id, status, payload)
select 1 + f.n % :keys, 'changed', f.payload
from generate_series(0, (:count - 1) / (select count(*) from filled)) as part, filled f where f.n < :count;
vacuum (analyze) public.events;
checkpoint;
