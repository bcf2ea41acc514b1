-- The settlement was refused: it is undone, and the claim's transaction, with its locks, goes on.
rollback to savepoint settle
