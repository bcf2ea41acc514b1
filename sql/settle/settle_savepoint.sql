-- Where a claim's transaction goes back to when its settlement is refused. The locks were taken before it: they stay.
savepoint settle
