"""What a test puts into a table, noted by a trigger, and judged by the history check when all has come to its end.

    noted = Noted(db, "public.jobs", key="k")       # before the first event
    noted.check(http_receipts(http) + worker.receipts, faults)"""

from tests.support.history import Event, Final, check

NOTE = """
create table public.noted (id bigint, key text);
create function public.note() returns trigger language plpgsql security definer as
    $$ begin insert into public.noted values (new.id, {key}); return null; end $$;
create trigger note after insert on {table} for each row execute function public.note()"""


class Noted:
    def __init__(self, db, table="outbox.events", key="aggregateid"):
        self.db, self.table = db, table
        db.psql(NOTE.format(table=table, key=f"new.{key}::text" if key else "null"))

    def check(self, receipts, faults=(), replaced=(), **options):
        """replaced: ids that another took the place of while they waited. Of these nobody may have heard."""
        events = [Event(event_id, key, "no" if event_id in replaced else "yes") for event_id, key in self.db.query("select id, key from public.noted")]
        assert events, "nothing was noted"
        left = [row[0] for row in self.db.query(f"select id from {self.table}")]
        dead = [row[0] for row in self.db.query("select event_id from outbox.dead")]
        return check(events, receipts, faults, Final(left, dead), **options).require()
