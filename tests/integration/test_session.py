"""What a relay asks of its own session, whatever the role's defaults."""

SETTINGS = {"client_encoding": "UTF8", "statement_timeout": "7s", "lock_timeout": "5s", "idle_in_transaction_session_timeout": "10min",
            "tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3"}


def test_nothing_waits_for_ever_on_a_session(db, relay):
    """An event is there for a claim only while the settings are these."""
    db.query("insert into outbox.events (aggregateid) values ('k')")
    where = " and ".join(f"current_setting('{name}') = '{value}'" for name, value in SETTINGS.items())
    config = (f'database: "{db.dsn} options=-cstatement_timeout=0"\nstatement_timeout: 7s\nsinks:\n  out: {{ type: discard }}\n'
              f'queues:\n  q: {{ sink: out, where: "{where}" }}\n')
    assert relay(config, until_empty=True).wait(60) == 0
    assert db.value("select count(*) from outbox.events") == 0
