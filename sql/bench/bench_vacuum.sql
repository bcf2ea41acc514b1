-- :state   the schema of a bench
vacuum (analyze) :state.events
