-- $1 replay_id bigint
-- -> unsent bigint
select outbox.replay_end($1::bigint);
