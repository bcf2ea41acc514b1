-- $1 name text, $2 queue text that it has to be of, null: of any
-- -> dropped boolean: false, there was none
select case when $2::text is null or exists (select from outbox.schedule s where s.name = $1 and s.queue = $2) then outbox.schedule_drop($1)
            else false end;
