"""Relays with `ordering: lease` over a shop that deliver to an HTTP receiver.

    one = relay(leased(shop, target, "2s", relay="a"))
    answer = hang(http, "a")              # relay a gets no answers until answer()
    events = lease_all(shop, http, 20)    # 20 keys, all of them leased by it
"""

from tests.support.history import Fault
from tests.support.process import wait_until
from tests.support.servers import Reply

LEASES = "select count(*) from outbox.parked where token is not null"


def leased(shop, target, duration="2s", owner="backend", relay=None, sink=None, **settings):
    """A configuration."""
    lease = f"{{ duration: {duration}, owner: {owner} }}"
    return shop.config(target.sink(relay=relay, timeout="300s", **(sink or {})), ordering="lease", lease=lease, **settings)


def hang(http, name):
    """Whatever relay `name` sends stays without an answer, until what this returns is called."""
    over = []
    http.rule(lambda request: not over and request.target == f"/in/{name}", Reply(action="hang"))

    def answer():
        over.append(True)
        http.release()

    return answer


def lease_all(shop, http, keys):
    """`keys` events of one key each; the only relay leases them all and is not answered."""
    events = shop.insert(range(1, keys + 1))
    wait_until(lambda: shop.db.value(LEASES) == keys, 30, "everything to be leased")
    wait_until(lambda: http.in_flight > 0, 30, "deliveries to be under way")
    return events


def lease_lost(events):
    return Fault("a lease was lost", in_flight=len(events), ids=[event.id for event in events])
