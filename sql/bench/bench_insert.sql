-- One event of the steady load. created_at is the sender's clock when it sent this, as that is the clock that says when the
-- event was delivered.
-- :state   the schema of a bench
-- $1 text key, $2 text payload, $3 bigint microseconds since 1970
insert into :state.events (aggregateid, type, payload, created_at)
values ($1::text, 'pgcourier.bench', $2::text::jsonb,
        timestamptz '1970-01-01 00:00:00+00' + $3::bigint * interval '1 microsecond')
