-- What the server brings to every queue, and what its schema outbox lacks of what relays and their commands use.
-- -> lock_slots bigint, locks_per_transaction int, synchronous_commit text, fsync text, schema_version_table boolean,
--    lacking text: a table or column of the schema that an earlier migration did not make; null: none
with used (rel, names) as (
    values ('parked', '{queue,key,event_id,keyless,attempts,next_at,last_error,first_failed_at,updated_at,head,after_id,resume_at,token,worker,'
                      'taken_id,taken_at,lease,backend_pid,backend_start}'::text[]),
           ('dead', '{dead_id,queue,event_id,key,type,reason,attempts,source_table,original,created_at,died_at}'),
           ('paused', '{queue,key,since,by,reason}'), ('schedule', '{queue,next_at,retry_at}'), ('archive', '{queue,event_id,key,created_at,original}'),
           ('queue', '{name,tbl,id_column,key_column,not_before_column,delayed,condition,lock_class,then_queue,then_payload,after_column,priority_column}')
)
select pg_catalog.current_setting('max_locks_per_transaction')::bigint
           * (pg_catalog.current_setting('max_connections')::bigint + pg_catalog.current_setting('max_prepared_transactions')::bigint),
       pg_catalog.current_setting('max_locks_per_transaction')::int,
       pg_catalog.current_setting('synchronous_commit'),
       pg_catalog.current_setting('fsync'),
       exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = 'outbox' and c.relname = 'schema_version'),
       (select pg_catalog.format('outbox.%s%s', u.rel, case when c.oid is not null then ' has no column ' || name else ' is not there' end)
          from used u cross join pg_catalog.unnest(u.names) with ordinality as x (name, place)
          left join pg_class c on c.relname = u.rel and c.relnamespace = (select n.oid from pg_namespace n where n.nspname = 'outbox')
         where not exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = x.name and not a.attisdropped)
         order by u.rel, x.place limit 1);
