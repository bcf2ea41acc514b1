"""How much processor time does an event take, of the relay and of the server?"""

from bench import cpu
from bench.answer import Answer
from bench.drain import Drain, delete_loop, smaller
from tests.support.process import wait_until


OTHERS = """select count(*) from pg_stat_activity
            where datname = current_database() and backend_type = 'client backend'
            and application_name <> current_setting('application_name')"""  # our own may go on


def of_server(bench):
    """Once no session of the run is left: one that is about to end is counted neither as a child nor as one that has ended."""
    wait_until(lambda: bench.db.value(OTHERS) == 0, what="the sessions to end")
    return cpu.of_server(bench.postgres)


def measure(bench, drain, run):
    """(us of the server, us of the program) per event."""
    bench.refill(drain.events, drain.keys)
    server, program = of_server(bench), cpu.of_ended_children()
    run()
    program = cpu.of_ended_children() - program
    server = of_server(bench) - server
    bench.expect_drained("the run", drain.events, drain.events)
    return server / drain.events * 1e6, program / drain.events * 1e6


def ask(bench):
    drain = Drain("cost", *bench.run.size((300_000, 30_000), (100_000, 10_000)), sink="{ type: discard }")
    # Vacuum takes as much for either, but at a moment of its own.
    bench.db.query("alter table outbox.events set (autovacuum_enabled = false)")
    floors, servers, relays = [], [], []
    for number in range(bench.run.pairs + 1):
        some = drain if number else smaller(drain)
        floor, _ = measure(bench, some, lambda: delete_loop(bench, some))
        server, relay = measure(bench, some, lambda: bench.time_relay(some.sink))
        if not number:
            continue  # that was to warm up
        floors.append(floor)
        servers.append(server)
        relays.append(relay)
        bench.say(f"cost, pair {number} of {bench.run.pairs}: server {floor:.2f} us an event for the floor, {server:.2f} us for the relay, "
                  f"which takes {relay:.2f} us itself")
    return [Answer("CPU of the relay per event", "us", relays, must=3, aim=1.5, more=False, events=drain.events,
                   note="starting included"),
            Answer("CPU of the server per event", "us", servers, floors, must=1.5, aim=1.2, more=False, events=drain.events)]
