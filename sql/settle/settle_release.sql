-- Ends what the savepoint began: what is done stays, or nothing does if it was rolled back to.
release savepoint settle
