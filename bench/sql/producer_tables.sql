-- Tables beside outbox.events with its columns, defaults and indexes: one that is nobody's outbox, one whose inserts
-- take turns by the trigger, and one that stays empty.
create table public.plain (like outbox.events including all);
create table public.triggered (like outbox.events including all);
select outbox.install_ordering('public.triggered', 'aggregateid');
create table public.quiet (like outbox.events including all);
