"""What a relay asks of its own session, whatever the role's defaults."""

import pytest

SETTINGS = {"client_encoding": "UTF8", "idle_in_transaction_session_timeout": "10min",
            "tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3"}


@pytest.mark.parametrize("timeout, lock_timeout", [("7s", "3500ms"), ("12s", "5s")])
def test_nothing_waits_for_ever_on_a_session(db, relay, timeout, lock_timeout):
    """An event is there for a claim only while the settings are these."""
    settings = {**SETTINGS, "statement_timeout": timeout, "lock_timeout": lock_timeout}
    db.query("insert into outbox.events (aggregateid) values ('k')")
    where = " and ".join(f"current_setting('{name}') = '{value}'" for name, value in settings.items())
    config = (f'database: "{db.dsn} options=-cstatement_timeout=0"\nstatement_timeout: {timeout}\nsinks:\n  out: {{ type: discard }}\n'
              f'queues:\n  q: {{ sink: out, where: "{where}" }}\n')
    assert relay(config, until_empty=True).wait(60) == 0
    assert db.value("select count(*) from outbox.events") == 0
