-- Drops a bench's schema, however long that takes; both in the transaction of one message, so that a session that a pooler
-- shares keeps its limit.
-- :state   the schema of a bench
set local statement_timeout = 0;
drop schema if exists :state cascade
