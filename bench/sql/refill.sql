-- The table as it is before each run, no dead rows in it and nothing left to write.
truncate outbox.events restart identity;
insert into outbox.events (aggregateid, type, payload) select aggregateid, type, payload from filled;
vacuum (analyze) outbox.events;
checkpoint;
