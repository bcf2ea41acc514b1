-- What waking by NOTIFY at each commit would cost, whether or not a relay rests.
create function public.notify_always() returns trigger language plpgsql as
    $$ begin perform pg_notify('elsewhere', ''); return null; end $$;
create trigger notify_always after insert on outbox.events for each statement execute function public.notify_always();
