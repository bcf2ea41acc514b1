-- 001_tables: the schema, an outbox table for those who have none, and what the relays remember.
--
-- Nothing here is ever written to an events table: retries live in parked, refusals in dead. That is why an existing
-- table can be served as it is.

-- One that was made for whoever migrates, who then need not CREATE in the database, will do. (IF NOT EXISTS wants that right, too.)
do $$ begin
    if not exists (select from pg_namespace n where n.nspname = 'outbox' and pg_get_userbyid(n.nspowner) = current_user) then
        create schema outbox;
    end if;
end $$;

create table outbox.schema_version (
    version    int primary key,
    name       text not null,
    applied_at timestamptz not null default clock_timestamp()
);

-- include state/state_tables.sql

revoke all on schema outbox from public;
