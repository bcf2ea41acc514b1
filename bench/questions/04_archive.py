"""How fast into the archive?"""

from bench.drain import Drain, compare, sql_loop


def ask(bench):
    def received():
        count = bench.db.value("select count(*) from outbox.archive")
        bench.db.query("truncate outbox.archive")
        return count

    drain = Drain("drain into the archive", *bench.run.size((200_000, 20_000), (50_000, 5_000)), sink="{ type: discard }",
                  queue="after: archive", floor=sql_loop("floor_archive.sql"), received=received)
    return [compare(bench, drain, must=0.75, aim=0.95)]
