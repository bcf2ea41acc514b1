-- $1 name text, $2 queue text that it has to be of, null: of any
-- One row; none: there was no such schedule.
select outbox.schedule_drop(s.name) from outbox.schedule s where s.name = $1 and ($2::text is null or s.queue = $2);
