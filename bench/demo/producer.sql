-- One transaction of a producer, run by pgbench: lock the order, move it on by one to three statuses, say so.
--
-- Transactions are numbered over all clients. Each 20,000 of them visit every order once, in an order of their own, so
-- that in time different clients come to the same order; after the fifth visit it has made 1+3+2+1+3 = 10 steps. So
-- what must arrive is known without asking any table.
\set number :made * :clients + :client_id
\set made :made + 1
\set visit :number / :orders
\set order 1 + permute(:number % :orders, :orders, :visit)
\set steps case when :visit = 1 or :visit = 4 then 3 when :visit = 2 then 2 else 1 end
begin;
select step from orders where id = :order for update \gset
insert into events (order_id, status)
select :order, (:statuses::text[])[:step::int + s] from generate_series(1, :steps::int) s;
update orders set step = step + :steps::int where id = :order;
commit;
