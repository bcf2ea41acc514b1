-- $1 token uuid, $2 error text or null, $3 fatal boolean
-- -> counted boolean
select outbox.fail($1::uuid, $2, $3::boolean);
