-- Lock in one statement, read in the next: only READ COMMITTED gives the second a snapshot of its own, whatever
-- default_transaction_isolation says.
begin isolation level read committed read write
