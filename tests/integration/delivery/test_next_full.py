"""outbox.next_full(): the next full hour, or other step, on the clock of a zone."""

import psycopg2
import pytest


@pytest.mark.parametrize("step, after, zone, expected", [
    ("1 hour", "2026-03-10 12:10:01Z", "UTC", "2026-03-10 13:00Z"),
    ("1 hour", "2026-03-10 12:00:00Z", "UTC", "2026-03-10 13:00Z"),
    ("15 minutes", "2026-03-10 12:44:59.9Z", "UTC", "2026-03-10 12:45Z"),
    ("1 hour", "2026-03-10 12:10:00Z", "Asia/Kolkata", "2026-03-10 12:30Z"),
    ("1 day", "2026-03-28 12:00:00Z", "Europe/Berlin", "2026-03-28 23:00Z"),
    ("1 day", "2026-03-29 12:00:00Z", "Europe/Berlin", "2026-03-29 22:00Z"),
    ("1 hour", "2026-03-29 00:59:00Z", "Europe/Berlin", "2026-03-29 01:00Z"),
    ("15 minutes", "2026-10-25 00:10:00Z", "Europe/Berlin", "2026-10-25 00:15Z"),  # the first of two times a quarter past two
    ("1 hour", "2026-10-25 00:30:00Z", "Europe/Berlin", "2026-10-25 01:00Z"),
    # 25 October: 03:00 is put back to 02:00. 29 March: 02:00 is put forward to 03:00.
    ("2 hours", "2026-10-24 23:30:00Z", "Europe/Berlin", "2026-10-25 00:00Z"),  # the first of two
    ("2 hours", "2026-10-25 00:00:00Z", "Europe/Berlin", "2026-10-25 03:00Z"),
    ("2 hours", "2026-10-25 01:30:00Z", "Europe/Berlin", "2026-10-25 03:00Z"),
    ("80 minutes", "2026-10-25 00:05:00Z", "Europe/Berlin", "2026-10-25 00:40Z"),
    ("80 minutes", "2026-10-25 01:05:00Z", "Europe/Berlin", "2026-10-25 03:00Z"),  # 02:40 has been
    ("2 hours", "2026-03-29 00:30:00Z", "Europe/Berlin", "2026-03-29 01:00Z"),  # at the jump over it
    ("2 hours", "2026-03-29 01:00:00Z", "Europe/Berlin", "2026-03-29 02:00Z"),
    ("1 day", "2026-10-31 12:00:00Z", "America/Havana", "2026-11-01 04:00Z"),  # 01:00 is put back to 00:00
    ("1 day", "2026-09-05 12:00:00Z", "America/Santiago", "2026-09-06 04:00Z"),  # 00:00 is put forward to 01:00
    ("1 day", "2026-04-04 12:00:00Z", "America/Santiago", "2026-04-05 04:00Z"),  # 00:00 is put back to 23:00
    ("1 hour", "2026-04-04 14:45:00Z", "Australia/Lord_Howe", "2026-04-04 15:30Z"),  # 02:00 is put back to 01:30
    ("7 days", "2026-11-22 12:00:00Z", "UTC", "2026-11-23 00:00Z"),  # from a Sunday to a Monday
])
def test_next_full_is_the_next_one_on_the_clock_of_the_zone(db, step, after, zone, expected):
    assert db.value("select outbox.next_full(%s, %s, %s) = %s::timestamptz", (step, after, zone, expected))


@pytest.mark.parametrize("arguments", ["null", "now(), null"])
def test_next_full_of_nothing_is_refused(db, arguments):
    """As a null not_before it would mean: at once."""
    with pytest.raises(psycopg2.errors.NullValueNotAllowed):
        db.value(f"select outbox.next_full('1 hour', {arguments})")


@pytest.mark.parametrize("call", ["next_full('1 hour', 'infinity')", "next_full('1 hour', '-infinity', 'UTC')", "next_full('1 hour', now(), 'Mars')",
                                  "next_full('1 day', 'infinity', 'Mars')", "next_cron('@daily', 'Mars')", "next_cron('@daily', 'UTC', 'infinity')"])
def test_what_is_no_time_or_zone_is_refused_with_a_hint(db, call):
    with pytest.raises(psycopg2.errors.InvalidParameterValue) as refused:
        db.query(f"select outbox.{call}")
    assert refused.value.diag.message_hint and call[:9] in refused.value.diag.message_primary


@pytest.mark.parametrize("step", ["0", "-1 hour", "8 days", "1 month", None])
def test_next_full_refuses_what_is_no_step(db, step):
    with pytest.raises(psycopg2.errors.InvalidParameterValue):
        db.value("select outbox.next_full(%s)", (step,))
