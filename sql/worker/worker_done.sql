-- $1 token uuid
-- -> counted boolean
select outbox.done($1::uuid);
