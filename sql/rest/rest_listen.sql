-- Producers notify this channel while a relay rests: see sql/schema/004_wake.sql.
listen pgcourier
