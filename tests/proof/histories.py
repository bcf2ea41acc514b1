"""Counts the histories that a test checks."""

import functools

from tests.support import history, orders

checked = 0


def _counted(function):
    @functools.wraps(function)
    def count(*arguments, **options):
        global checked
        checked += 1
        return function(*arguments, **options)

    return count


def install():
    """Before test modules are imported: they take what they need by name."""
    history.History.check = _counted(history.History.check)
    orders.check_history = _counted(orders.check_history)
