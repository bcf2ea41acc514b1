-- The schema of one bench: the tables of the schema outbox that a relay works with.
-- :state   the schema's name
begin;
create schema :state;
comment on schema :state is 'pgcourier bench';
-- include state/state_tables.sql
-- include state/state_paused.sql
commit;
