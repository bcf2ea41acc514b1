-- $1 queue text, $2 key text or null, $3 reason text
-- -> begun boolean: false, it was paused already
select outbox.pause($1, $2, $3);
