-- $1 token uuid, $2 lease interval or null: as long as it was
-- -> counted boolean
select outbox.extend($1::uuid, $2::interval);
