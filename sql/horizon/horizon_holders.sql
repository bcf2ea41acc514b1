-- Transactions that may have drawn an id and not ended. nextval() takes RowExclusiveLock on the sequence before it
-- draws and keeps it until the transaction ends (lock_and_open_sequence() in PostgreSQL's sequence.c), also for
-- prepared transactions; an INSERT takes the same on the table. pg_locks shows both to everybody.
-- None is named when nothing more has been drawn: pg_locks copies the lock table of the whole server, which takes 2 ms while
-- a relay holds 2,000 keys.
--
-- :holders_of      the sequence as a regclass, or the table when there is none
-- :drawn_further   is the last id that the sequence has drawn another than $1?
-- $1 bigint        whoever has drawn an id up to here has ended
-- One row a transaction: holder text
select l.virtualtransaction as holder
from pg_catalog.pg_locks l
where (:drawn_further) and l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
  and l.relation = :holders_of
  and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
