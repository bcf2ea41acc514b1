-- $1 token uuid
-- -> counted boolean
select outbox.release($1::uuid);
