"""Counts the histories that a test checks."""

import functools

from tests.support.verdict import Verdict

checked = 0


def _counted(function):
    @functools.wraps(function)
    def count(*arguments, **options):
        global checked
        checked += 1
        return function(*arguments, **options)

    return count


def install():
    """Each verdict is on one history."""
    Verdict.__init__ = _counted(Verdict.__init__)
