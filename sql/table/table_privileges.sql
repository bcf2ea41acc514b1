-- The rights that the current user lacks for some work, by object. Nothing here needs a right itself. What each work needs
-- is listed here and nowhere else; docs/security.md shows it, and tests/integration/table/test_privileges.py holds the two together.
-- $1 table oid (0: the work is on no queue's; '*' stands for it below)
-- $2 works text[]: of run, note (a queue's name for SQL), lock rows, come after, archive, hand on (to this table), purge, status, failures, dead list, dead show, dead retry, dead drop, other queue, pause, drain, schedule, replay,
--    resume, publish, take, done, fail, extend, release, migrate, bench
-- -> missing text ("has no SELECT on outbox.parked"), remedy text, needed boolean (false: it goes on without)
with work (name, role) as (
    values ('run', 'outbox_relay'), ('note', 'outbox_relay'), ('lock rows', 'outbox_relay'), ('come after', 'outbox_relay'), ('archive', 'outbox_relay'), ('hand on', 'outbox_writer'), ('purge', 'outbox_relay'), ('status', 'outbox_monitor'), ('dead list', 'outbox_relay'),
           ('dead show', 'outbox_relay'),
           ('dead retry', 'outbox_relay'), ('dead drop', 'outbox_relay'), ('other queue', 'outbox_relay'), ('pause', 'outbox_relay'), ('drain', 'outbox_relay'), ('schedule', 'outbox_monitor'),
           ('resume', 'outbox_relay'), ('publish', 'outbox_writer'), ('failures', 'outbox_monitor'), ('replay', 'outbox_operator'), ('take', 'outbox_worker'),
           ('done', 'outbox_worker'), ('fail', 'outbox_worker'), ('extend', 'outbox_worker'), ('release', 'outbox_worker')
), need (work, name, rights) as (
    values ('run', '*', 'SELECT,DELETE'), ('run', 'parked', 'SELECT,INSERT,UPDATE,DELETE'), ('run', 'dead', 'INSERT'),
           ('run', 'paused', 'SELECT'), ('run', 'schedule', 'SELECT'), ('schedule', 'schedule', 'SELECT'), ('run', 'queue', 'SELECT'),
           ('note', 'note_served()', 'EXECUTE'), ('note', 'note_serving()', 'EXECUTE'),
           ('lock rows', '*', 'UPDATE of any column'), ('come after', 'dead', 'SELECT'),
           ('hand on', '*', 'INSERT'), ('archive', 'archive', 'INSERT'), ('archive', 'archive_prepare()', 'EXECUTE'),
           ('archive', 'archive_expire()', 'EXECUTE'), ('purge', 'dead', 'SELECT,DELETE'),
           ('status', '*', 'SELECT'), ('status', 'status_parked', 'SELECT'), ('status', 'status_closed', 'SELECT'),
           ('status', 'status_dead', 'SELECT'), ('status', 'paused', 'SELECT'),
           ('pause', 'pause()', 'EXECUTE'), ('drain', 'pause()', 'EXECUTE'), ('drain', 'parked', 'SELECT'), ('resume', 'resume()', 'EXECUTE'),
           ('dead list', 'dead', 'SELECT'), ('dead list', 'parked', 'SELECT'), ('dead show', 'dead', 'SELECT'),
           ('dead retry', '*', 'INSERT'), ('dead retry', 'dead', 'SELECT,DELETE'), ('dead retry', 'parked', 'SELECT,INSERT,UPDATE'),
           ('dead drop', '*', 'SELECT,DELETE'), ('dead drop', 'dead', 'SELECT,DELETE'), ('dead drop', 'parked', 'SELECT,UPDATE,DELETE'),
           ('other queue', 'queue_names()', 'EXECUTE'), ('other queue', 'queue', 'SELECT'),
           ('publish', 'publish()', 'EXECUTE'), ('publish', 'events', 'INSERT,SELECT (id)'), ('publish', 'events_id_seq', 'USAGE'),
           ('replay', 'replay()', 'EXECUTE'), ('replay', 'replay_begin()', 'EXECUTE'), ('replay', 'replay_lock()', 'EXECUTE'), ('replay', 'replay_end()', 'EXECUTE'),
           ('replay', 'parked', 'SELECT,INSERT,UPDATE,DELETE'), ('replay', 'dead', 'INSERT,SELECT (dead_id)'), ('replay', 'paused', 'SELECT'), ('replay', 'schedule', 'SELECT'), ('replay', 'queue', 'SELECT'),
           ('failures', 'failures', 'SELECT'), ('failures', 'sample_of()', 'EXECUTE'), ('take', 'take()', 'EXECUTE'),
           ('done', 'done()', 'EXECUTE'), ('fail', 'fail()', 'EXECUTE'), ('extend', 'extend()', 'EXECUTE'), ('release', 'release()', 'EXECUTE')
), wanted (place, kind, object, of_outbox, right_, role) as materialized (
    -- Materialized: a plan that asks for a right before it has joined asks functions about rights that only tables have.
    select 1, 's', n.oid, n.nspname = 'outbox', 'USAGE', w.role
      from pg_namespace n, work w
     where w.name = any ($2::text[])
       and (n.nspname = 'outbox' or n.oid = (select c.relnamespace from pg_class c where c.oid = $1::oid))
    union
    select case when d.name = '*' then 2 else 3 end, 't', c.oid, d.name <> '*', r, w.role
      from need d
      join work w on w.name = d.work
      join pg_class c on c.oid = $1::oid and d.name = '*'
                      or c.relname = d.name and c.relnamespace = (select n.oid from pg_namespace n where n.nspname = 'outbox')
     cross join pg_catalog.unnest(pg_catalog.string_to_array(d.rights, ',')) r
     where d.work = any ($2::text[])
       -- Only the ordering trigger draws ids by itself.
       and (c.relkind <> 'S' or exists (select from pg_trigger t join pg_class e on e.oid = t.tgrelid
                                         where t.tgname = 'zz_outbox_order_by_key' and e.relname = 'events' and e.relnamespace = c.relnamespace))
    union
    select 4, 'f', p.oid, true, d.rights, w.role
      from need d
      join work w on w.name = d.work
      join pg_proc p on p.proname || '()' = d.name
                     and p.pronamespace = (select n.oid from pg_namespace n where n.nspname = 'outbox')
     where d.work = any ($2::text[])
), lacking as (
    select w.*,
           case kind when 's' then 'schema ' || (select pg_catalog.quote_ident(n.nspname) from pg_namespace n where n.oid = object)
                     when 'f' then 'function ' || (select pg_catalog.format('outbox.%I(%s)', p.proname, pg_catalog.oidvectortypes(p.proargtypes))
                                                     from pg_proc p where p.oid = object)
                     else (select case when c.relkind = 'S' then 'sequence ' else '' end || pg_catalog.format('%I.%I', n.nspname, c.relname)
                             from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = object) end as name
      from wanted w
     where not case when kind = 's' then pg_catalog.has_schema_privilege(object, right_)
                    when kind = 'f' then pg_catalog.has_function_privilege(object, right_)
                    when right_ like 'SELECT (%)' then pg_catalog.has_column_privilege(object, pg_catalog.substring(right_, '[(](.*)[)]'), 'SELECT')
                    when right_ = 'UPDATE of any column' then pg_catalog.has_any_column_privilege(object, 'UPDATE')
                    when right_ = 'USAGE' then pg_catalog.has_sequence_privilege(object, right_)
                    else pg_catalog.has_table_privilege(object, right_) end
), listed (place, object, missing, remedy, needed) as (
select place, object, pg_catalog.format('has no %s on %s', pg_catalog.string_agg(right_, ', ' order by right_), name),
       -- The group role, unless the user has it and it is the group that lacks the right.
       case when of_outbox and exists (select from pg_roles r where r.rolname = role and not pg_catalog.pg_has_role(current_user, r.oid, 'MEMBER'))
            then pg_catalog.format('grant %I to %I;', role, current_user)
            else pg_catalog.format('grant %s on %s to %I;',
                                   pg_catalog.replace(pg_catalog.lower(pg_catalog.string_agg(right_, ', ' order by right_)), 'update of any column',
                                                      coalesce((select pg_catalog.format('update (%I)', a.attname) from pg_attribute a
                                                        where a.attrelid = object and a.attnum > 0 and not a.attisdropped order by a.attnum limit 1), '')),
                                   name, current_user)
       end,
       kind <> 'f' or role <> 'outbox_relay'
  from lacking
 group by place, kind, object, of_outbox, name, role
union all
select 1, d.oid, pg_catalog.format('has no CREATE on database %I', d.datname), pg_catalog.format('grant create on database %I to %I;', d.datname, current_user), true
  from pg_database d
 where ('bench' = any ($2::text[]) or 'migrate' = any ($2::text[]) and not exists (select from pg_namespace n where n.nspname = 'outbox'))
   and d.datname = pg_catalog.current_database() and not pg_catalog.has_database_privilege(d.oid, 'CREATE')
)
select missing, remedy, needed from listed order by place, object;
