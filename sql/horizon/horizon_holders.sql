-- Transactions that may have drawn an id and not ended. nextval() takes RowExclusiveLock on the sequence before it
-- draws and keeps it until the transaction ends (lock_and_open_sequence() in PostgreSQL's sequence.c), also for
-- prepared transactions; an INSERT takes the same on the table. pg_locks shows both to everybody.
--
-- :holders_of   the sequence's name as a literal, or the table's when there is none
-- One row a transaction: holder text
select l.virtualtransaction as holder
from pg_catalog.pg_locks l
where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
  and l.relation = :holders_of::regclass
  and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
