-- 004_notify: the optional wake-up for relays that listen. Nothing installs it by itself.
--
-- What it costs: every transaction that notifies takes one database-wide lock at commit, so commits no longer share
-- their flush to disk. Measured with 32 clients on two cores: 6,061 inserts/s without, 839 with. Relays poll every few
-- milliseconds while there is work, so this is for tables with few writers that want the idle poll to be long.
--
-- Per statement and with a constant payload, so that a transaction of a thousand rows queues one notification:
-- PostgreSQL drops equal ones. TG_ARGV[0] is the channel.
create function outbox.notify_insert() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform pg_notify(tg_argv[0], '');
    return null;
end
$$;

create function outbox.install_notify(tbl regclass, channel text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if channel is null or octet_length(channel) not between 1 and 63 then
        raise exception 'install_notify: the channel must have 1 to 63 bytes'
            using errcode = 'invalid_parameter_value', hint = 'Give the name that the queue has as "listen", like orders.';
    end if;
    perform outbox.uninstall_notify(tbl);
    execute format('create trigger outbox_notify_insert after insert on %s'
                   ' for each statement execute function outbox.notify_insert(%L)', tbl, channel);
end
$$;

create function outbox.uninstall_notify(tbl regclass) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (select from pg_trigger t where t.tgrelid = tbl and t.tgname = 'outbox_notify_insert') then
        execute format('drop trigger outbox_notify_insert on %s', tbl);
    end if;
end
$$;

revoke all on function outbox.notify_insert(), outbox.install_notify(regclass, text), outbox.uninstall_notify(regclass)
    from public;
