-- Keeps other processes away from a replay until the transaction ends; fails where it has ended meanwhile.
-- $1 replay_id bigint
-- -> (a column without meaning)
select outbox.replay_lock($1::bigint);
