-- One batch of the bare drain into the archive: what a relay writes of each event, moved by one statement.
with gone as (
    delete from outbox.events e
    where ctid = any (array(select ctid from outbox.events limit 1000 for update skip locked))
    returning id, aggregateid as key, created_at, row_to_json(e.*) as original
)
insert into outbox.archive (queue, event_id, key, created_at, original)
select 'bench', id, key, created_at, original from gone
