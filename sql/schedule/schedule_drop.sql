-- $1 name text
-- -> dropped boolean: false, there was none
select outbox.schedule_drop($1);
