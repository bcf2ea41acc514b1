-- :state   the schema of a bench
drop schema if exists :state cascade
