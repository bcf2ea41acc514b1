-- Whether PostgreSQL can read a value. Where it cannot, either false comes, or it fails with a SQLSTATE of class 22.
-- $1 text   the value
-- $2 text   what it is to be: time, interval, JSON, UUID or pattern
-- -> readable boolean
select case $2::text
       when 'time' then ($1::text)::timestamptz is not null
       when 'interval' then ($1::text)::interval is not null
       when 'JSON' then ($1::text)::jsonb is not null
       when 'UUID' then ($1::text)::uuid is not null
       -- LIKE refuses a pattern that ends in an escape, but only when a text gets that far.
       else (pg_catalog.length($1::text) - pg_catalog.length(pg_catalog.rtrim($1::text, E'\\'))) % 2 = 0 end;
