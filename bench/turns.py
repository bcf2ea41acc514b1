"""Ways to do one thing, in turn, on a machine whose speed changes within seconds: short rounds, each in another order, and every run
held against those of the floor that are next to it in time."""


def rotated(names, number):
    """The order of a round: over len(names) rounds each name has each place once."""
    at = number % len(names)
    return names[at:] + names[:at]


def between_floors(floor, ways, rounds, say):
    """Measures floor() before the first run and after each, and every ways[name]() once a round. Returns {name: ([beside], [run])},
    where `beside` is the mean of the floors before and after that run."""
    measured = {name: ([], []) for name in ways}
    before = floor()
    for number in range(rounds):
        for name in rotated(list(ways), number):
            run, after = ways[name](), floor()
            beside, runs = measured[name]
            beside.append((before + after) / 2)
            runs.append(run)
            before = after
        say(number + 1, {name: (beside[-1], runs[-1]) for name, (beside, runs) in measured.items()})
    return measured
