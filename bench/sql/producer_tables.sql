-- Tables beside outbox.events with its columns, defaults and indexes: one that is nobody's outbox, one whose inserts
-- take turns by the trigger, and one that stays empty.
create table public.plain (like outbox.events including all);
create table public.triggered (like outbox.events including all);
create trigger order_by_key before insert on public.triggered
    for each row execute function outbox.order_by_key('aggregateid', 'id');
create table public.quiet (like outbox.events including all);
