"""Ids that no sequence feeds may lie anywhere."""

import re

import pytest

CONFIG = """
database: "{dsn}"
sinks: {{ none: {{ type: discard }} }}
queues:
  orders: {{ table: public.t, columns: {{ key: k }}, sink: none }}
"""


@pytest.mark.parametrize("ids", [(1, 9223372036854775807), (-9223372036854775808, 0, 9223372036854775807), (-9223372036854775808,),
                                 (1_700_000_000_000_000_000, 1_700_000_000_000_000_001)], ids=["top", "both", "bottom", "snowflake"])
def test_a_table_with_ids_far_apart_is_drained_in_few_claims(db, relay, ids):
    db.query("create table public.t (id bigint primary key, k text)")
    db.let_relay_in("public.t")
    for number in ids:
        db.query("insert into public.t values (%s, 'a')", (number,))
    running = relay(CONFIG.format(dsn=db.dsn), until_empty=True)
    assert running.wait() == 0
    assert db.value("select count(*) from public.t") == 0
    claims = int(re.search(r" claims=(\d+)", running.logged("queue.stats")[-1]).group(1))
    assert claims < 300
