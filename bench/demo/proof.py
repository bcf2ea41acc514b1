"""Is what the relays wrote what the producers committed? proof.py FILE [ORDERS] checks a file by itself.

The expected events are known without asking the relay or the database: every order goes through all STATUSES, once and
in this order. So nothing that is lost, doubled, invented or swapped can hide."""

import json
import sys

STATUSES = ["created", "paid", "reserved", "picked", "packed", "handed_over", "shipped", "at_depot", "delivered", "closed"]
ORDERS = 20_000
PROBLEMS_MAX = 10


class Proof:
    """Feed every line, then ask .problems(). Keeps counts of everything and the text of the first few."""

    def __init__(self, orders=ORDERS):
        self.orders = orders
        self.ids = set()
        self.found = 0  # problems, all of them
        self.texts = []
        self._steps = [0] * (orders + 1)  # statuses seen of each order
        self._last_id = [0] * (orders + 1)

    @property
    def expected(self):
        return self.orders * len(STATUSES)

    def feed(self, line, number):
        """line: bytes, with its newline."""
        try:
            event = json.loads(line) if line.endswith(b"\n") else None
            event_id, order, status = event["id"], int(event["key"]), event["type"]
            inside = event["payload"]
            agrees = (inside["id"], inside["order_id"], inside["status"]) == (event_id, order, status)
        except (ValueError, TypeError, KeyError):
            self._problem(f"line {number}: not an event")
            return
        if not agrees or event["destination"] != f"orders.{status}":
            self._problem(f"line {number}: event {event_id} does not agree with its row")
        if event_id in self.ids:
            self._problem(f"line {number}: event {event_id} of order {order} came before")
        self.ids.add(event_id)
        if not 1 <= order <= self.orders:
            self._problem(f"line {number}: there is no order {order}")
            return
        self._check_order(event_id, order, status, number)

    def _check_order(self, event_id, order, status, number):
        if event_id < self._last_id[order]:
            self._problem(f"line {number}: event {event_id} of order {order} came after {self._last_id[order]}")
        step = self._steps[order]
        due = STATUSES[step] if step < len(STATUSES) else "nothing more"
        if status != due:
            self._problem(f"line {number}: order {order} became {status} when {due} was due")
        self._last_id[order] = max(self._last_id[order], event_id)
        self._steps[order] += 1

    def problems(self):
        """Texts, the first few; [] when every event arrived once and every order in order."""
        if len(self.ids) != self.expected:
            self._problem(f"{len(self.ids):,} different events arrived, not {self.expected:,}")
        for order in range(1, self.orders + 1):
            if self._steps[order] != len(STATUSES):
                self._problem(f"order {order} has {self._steps[order]} events, not {len(STATUSES)}")
        unsaid = self.found - len(self.texts)
        return self.texts + ([f"and {unsaid:,} problems more"] if unsaid else [])

    def _problem(self, text):
        self.found += 1
        if len(self.texts) < PROBLEMS_MAX:
            self.texts.append(text)


def prove_file(path, orders=ORDERS):
    """A Proof that has read the whole file."""
    proof = Proof(orders)
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            proof.feed(line, number)
    return proof


def main(path, orders=ORDERS):
    proof = prove_file(path, int(orders))
    problems = proof.problems()
    print("\n".join(problems) or f"{proof.expected:,} events, each once, {proof.orders:,} orders, each in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
