-- :state   the schema of a bench
truncate :state.events restart identity
