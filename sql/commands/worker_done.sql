-- $1 token uuid, $2 response text or null
-- -> counted boolean
select outbox.done($1::uuid, $2);
