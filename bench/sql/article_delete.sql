-- $1 bigint event
delete from public.events where id = $1::bigint
