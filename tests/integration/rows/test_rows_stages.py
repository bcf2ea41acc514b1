"""Rows T11 and L7 (chains) of docs/proof.md, each test named by its row."""

from tests.support.servers import Reply, wait_until

STAGES = ("order", "invoice", "letter")
CONFIG = """
database: "{db}"
sinks: {{ web: {{ type: http, url: "{url}" }} }}
queues:
  order: {{ table: public.order_stage, columns: {{ key: k, payload: body }}, sink: web, destination: order, then: invoice }}
  invoice: {{ table: public.invoice_stage, columns: {{ key: k, payload: body }}, sink: web, destination: invoice, then: letter,
              retry: {{ base: 1ms, max: 1ms, attempts: 3 }} }}
  letter: {{ table: public.letter_stage, columns: {{ key: k, payload: body }}, sink: web, destination: letter }}
"""


def start(db, http, relay, **options):
    for stage in STAGES:
        db.psql(f"create table public.{stage}_stage (id bigserial primary key, k text, body jsonb)")
        db.let_relay_in(f"public.{stage}_stage")
        db.let_hand_on(f"public.{stage}_stage")
    db.query("insert into public.order_stage (k, body) select 'k' || n % 3, to_jsonb(n) from generate_series(1, 9) n")
    return relay(CONFIG.format(db=db.dsn, url=http.url), **options)


def seen(http, stage):
    return [int(request.body) for request in http.requests if request.target == f"/{stage}"]


def test_t11_a_finished_task_moves_to_its_next_stage(db, http, relay):
    assert start(db, http, relay, until_empty=True).wait() == 0
    for stage in STAGES:
        assert sorted(seen(http, stage)) == list(range(1, 10))
        for key in range(3):
            assert [n for n in seen(http, stage) if n % 3 == key] == [n for n in range(1, 10) if n % 3 == key]


def test_l7_a_chain_ends_where_a_job_fails(db, http, relay):
    http.respond = lambda request: Reply(500 if request.target == "/invoice" and request.body == b"4" else 200)
    one = start(db, http, relay)
    wait_until(lambda: len(set(seen(http, "letter"))) == 8)
    assert one.stop() == 0
    assert sorted(seen(http, "letter")) == [1, 2, 3, 5, 6, 7, 8, 9]
    assert db.query("select queue, original ->> 'body' from outbox.dead") == [("invoice", "4")]
