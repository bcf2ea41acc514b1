-- No dead rows, and nothing left to write.
vacuum (analyze) outbox.events;
checkpoint;
