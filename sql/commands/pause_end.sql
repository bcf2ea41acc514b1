-- As in pause_begin.sql.
-- $1 queue text, $2 key text or null
-- -> ended boolean: false, it was not paused
select outbox.resume($1, $2, is_new => true);
