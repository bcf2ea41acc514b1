-- The caller has found the queue in its configuration, which may be the first to name it, or in the database.
-- $1 queue text, $2 key text or null, $3 reason text
-- -> begun boolean: false, it was paused already
select outbox.pause($1, $2, $3, is_new => true);
