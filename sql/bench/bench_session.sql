-- The session that owns a bench's schema is idle while others work, and fills for as long as it takes.
select pg_catalog.set_config(s.name, '0', false) from pg_settings s
 where s.name in ('statement_timeout', 'idle_session_timeout', 'transaction_timeout')
