"""`pgcourier bench`: the numbers are a user's own; what is held here is that it counts right, that it leaves nothing behind
however it ends, and that it keeps away from everything else."""

import json
import os
import re
import signal
from contextlib import closing

import pytest

from tests.support.process import REPO, Process, free_port
from tests.support.proxy import DOWN, Proxy
from tests.support.relay import binary, environment
from tests.support.servers import HANG, PgBouncer, Reply, Standby, run_command, wait_until

CONFIG = """
database: "{dsn}"
statement_timeout: 1s
sinks: {{ web: {{ type: http, url: "{url}" }}, log: {{ type: file, path: "events.jsonl" }},
          cache: {{ type: redis, url: "redis://127.0.0.1:1" }} }}
queues:
  orders: {{ sink: web, destination: "orders" }}
  others: {{ sink: log, destination: "a", where: "true", table: x.y }}
  theirs: {{ sink: log, destination: "b", where: "true", table: x.z }}
"""
SMALL = ["--events", "3000", "--keys", "200", "--pairs", "2", "--rate", "200", "--seconds", "1"]
FEW = ["--events", "40", "--keys", "20", "--pairs", "1", "--rate", "0"]
SCHEMAS = "select nspname::text from pg_namespace where nspname like 'pgcourier_bench%' order by 1"
OBJECTS = ("select count(*) from (select oid from pg_class union all select oid from pg_proc union all select oid from pg_namespace"
           " union all select oid from pg_type) o")
FILLING = "select count(*) from pg_stat_activity where datname = %s and application_name = 'pgcourier/bench' and query ~ 'insert into'"
DROPPING = "select count(*) from pg_stat_activity where datname = %s and application_name = 'pgcourier/bench' and query ~ 'drop schema' and state = 'active'"
SESSIONS = "select count(*) from pg_stat_activity where datname = %s and application_name like 'pgcourier%%'"


def bench(db, *arguments):
    return run_command("bench", "-d", db.owner_dsn, *arguments, timeout_s=300)


@pytest.fixture
def hanging(empty_db, http, relay):
    """Starts a bench whose drain stands still with events under way, and returns it."""

    def start():
        http.rule(lambda request: True, Reply(action=HANG))
        one = relay(CONFIG.format(dsn=empty_db.owner_dsn, url=http.url), command="bench", arguments=["--sink", "web", *FEW])
        wait_until(lambda: http.requests, 60, "an event to be sent")
        return one

    return start


def test_it_measures_and_leaves_nothing_behind(empty_db):
    before = empty_db.value(OBJECTS)
    done = run_command("bench", "-d", empty_db.owner_dsn + " options='-c default_transaction_isolation=serializable'", "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [result[name] for name in ("events", "keys", "payload_bytes", "pairs", "connections", "sink")] == [3000, 200, 300, 2, 2, "discard"]
    for name in ("relay", "floor", "ratio"):
        assert 0 < result[name]["least"] <= result[name]["median"] <= result[name]["most"]
    latency = result["latency"]
    assert 0 < latency["rate"] <= 220 and 0 < latency["p50_ms"] <= latency["p99_ms"] and 0 < latency["insert_p50_ms"] <= latency["insert_p99_ms"]
    assert latency["p50_ms"] >= latency["insert_p50_ms"] * 0.8  # nothing is delivered before it is committed; buckets are an eighth wide
    assert result["server"]["fsync"] == "off" and result["server"]["shared_buffers"] == "128MB" and result["server"]["round_trip_ms"] > 0
    assert re.match(r"schema pgcourier_bench_\d+_[0-9a-f]{8}: 3,000 events, about 2 MB, filled 4 times\npair 1 of 2: floor ", done.stderr)
    assert empty_db.value(OBJECTS) == before


def test_people_get_a_table(empty_db):
    done = bench(empty_db, *FEW)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^PostgreSQL \d\S*.*, fsync off, synchronous_commit off, shared_buffers 128MB, round trip [\d.]+ ms$", done.stdout, re.MULTILINE)
    assert re.search(r"^40 events of 300 bytes, 20 keys, 2 connections, sink discard$", done.stdout, re.MULTILINE)
    for what in ("relay", "floor", "relay / floor"):
        assert re.search(rf"^{what} +[\d,.]+   [\d,.]+ to [\d,.]+$", done.stdout, re.MULTILINE), done.stdout
    assert "latency" not in done.stdout


@pytest.mark.parametrize("bytes_", [64, 1800])
def test_payloads_have_the_size_that_was_asked_for(empty_db, http, tmp_path, bytes_):
    """Those of the drain and those of the steady load; and a sink is delivered to only when it is named, and said beforehand."""
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(dsn=empty_db.owner_dsn, url=http.url))
    arguments = ["bench", "-c", str(path), "--events", "30", "--pairs", "1", "--rate", "50", "--seconds", "1", "--payload", str(bytes_)]
    assert run_command(*arguments).returncode == 0 and not http.requests
    done = run_command(*arguments, "--sink", "web")
    assert done.returncode == 0, done.stderr
    assert '\n80 events are delivered for real, to the sink web (http), destination "orders"\n' in done.stderr
    assert [len(request.body) for request in http.requests] == [bytes_] * 80
    assert {request.target for request in http.requests} == {"/orders"}
    assert empty_db.query(SCHEMAS) == []


def test_its_tables_are_those_of_the_schema_outbox(db):
    with open(os.path.join(REPO, "sql/bench/bench_create.sql")) as file:
        db.psql("\\set state bench\n" + re.sub(r"-- include (\S+)", rf"\\i {REPO}/sql/\1", file.read()))
    shape = """
        select c.relname, c.reloptions::text, array_agg(format('%%s %%s %%s %%s %%s', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                                                  a.attidentity, pg_get_expr(d.adbin, d.adrelid)) order by a.attnum),
               (select array_agg(replace(pg_get_indexdef(i.indexrelid), n.nspname || '.', '') order by pg_get_indexdef(i.indexrelid)) from pg_index i where i.indrelid = c.oid)
          from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
          left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
         where n.nspname = %s and c.relname in ('events', 'parked', 'paused', 'dead') group by c.oid, n.nspname order by 1"""
    ours = db.query(shape, ("bench",))
    assert ours == db.query(shape, ("outbox",)) and len(ours) == 4


def test_a_drain_ends_when_its_rows_are_gone(empty_db):
    """Acknowledged they are at once; their deletion takes a quarter of a second."""
    empty_db.query(MEDDLE.format(when=DELETE, body="perform pg_sleep(0.25); return null;"))
    done = bench(empty_db, "--json", *FEW)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["relay"]["most"] <= 40 / 0.25


@pytest.mark.parametrize("seconds, short", [(0, True), (1, False)])
def test_a_drain_of_less_than_a_second_is_called_noise(empty_db, seconds, short):
    empty_db.query(MEDDLE.format(when=DELETE, body=f"perform pg_sleep({seconds}); return null;"))
    done = bench(empty_db, "--json", *FEW)
    assert done.returncode == 0 and json.loads(done.stdout)["too_short"] == short
    warned = re.findall(r"^warning: the shortest drain took 0\.\d{3} s, and below 1 s the numbers are noise: give --events 200000$", done.stderr, re.MULTILINE)
    assert len(warned) == short and done.stderr.count("\n") == 2 + short, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_mid_drain_ends_it_and_drops_the_schema(empty_db, hanging, number):
    one = hanging()
    assert len(empty_db.query(SCHEMAS)) == 1
    assert one.stop(number, 60) == 75
    assert one.log[-1] == "pgcourier: bench: stopped by a signal"
    assert empty_db.query(SCHEMAS) == []


def test_a_signal_cancels_the_fill(empty_db, relay, http):
    one = relay(CONFIG.format(dsn=empty_db.owner_dsn, url=http.url), command="bench", arguments=["--events", "5000000"])
    wait_until(lambda: empty_db.value(FILLING, (empty_db.name,)), 60, "the fill")
    assert one.stop(signal.SIGINT, 60) == 75
    assert empty_db.query(SCHEMAS) == []


@pytest.mark.parametrize("reply, message", [(Reply(422), "bench: the sink web refuses events"), (None, "bench: the sink web is down")])
def test_a_sink_that_fails_ends_it_and_says_why(empty_db, http, tmp_path, reply, message):
    if reply:
        http.rule(lambda request: True, reply)
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(dsn=empty_db.owner_dsn, url=http.url if reply else f"http://127.0.0.1:{free_port()}"))
    done = run_command("bench", "-c", str(path), "--sink", "web", *FEW)
    lines = done.stderr.splitlines()
    assert done.returncode == 75 and done.stdout == ""
    assert lines[-1].startswith(f"pgcourier: {message}, see the line above;")
    assert re.search(r"level=warn msg=(delivery\.dead|sink\.down) .*cause=", lines[-2])
    assert empty_db.query(SCHEMAS) == []


def test_a_drain_that_stands_still_is_given_up(empty_db, hanging):
    one = hanging()
    assert one.wait(60) == 75
    assert one.log[-1] == "pgcourier: bench: nothing was delivered for 3.0 s"
    assert empty_db.query(SCHEMAS) == []


# Runs in place of the statements named in it, on the bench's own table.
MEDDLE = """
create schema meddler; grant usage on schema meddler to public;
create function meddler.meddle() returns trigger language plpgsql as $$ begin {body} end $$;
create function meddler.add() returns event_trigger language plpgsql as $$
declare made record;
begin
    for made in select * from pg_event_trigger_ddl_commands() where object_identity ~ '^pgcourier_bench_.*[.]events$' and command_tag = 'CREATE TABLE' loop
        execute format('create trigger meddler before {when} execute function meddler.meddle()', made.object_identity);
    end loop;
end $$;
create event trigger meddler on ddl_command_end execute function meddler.add()"""
DELETE = "delete on %s for each statement"
LOAD = "insert on %s for each row when (new.aggregateid like ''bench-%%-%%'')"


@pytest.mark.parametrize("when, who", [(DELETE, "the floor"), (LOAD, "an insert")])
def test_a_statement_that_fails_ends_it_and_says_which(empty_db, when, who):
    empty_db.query(MEDDLE.format(when=when, body="raise exception 'no %', 'way';"))
    done = bench(empty_db, *FEW, "--rate", "20")
    assert done.returncode not in (0, 64) and done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(f"pgcourier: bench: {who}: no way (SQLSTATE P0001")
    assert empty_db.query(SCHEMAS) == []


WAITING = "select 1 from pg_stat_activity where datname = %s and application_name = 'pgcourier/bench' and wait_event = 'advisory'"


@pytest.fixture
def held_up(empty_db, relay):
    """Starts a bench, lets act(it) do something while statements of it wait, and returns how it ended."""

    def start(when, act):
        empty_db.query(MEDDLE.format(when=when, body="perform pg_advisory_lock(42); perform pg_advisory_unlock(42); return new;"))
        holder = empty_db.connect()
        with holder.cursor() as cursor:
            cursor.execute("select pg_advisory_lock(42)")
            one = relay(CONFIG.format(dsn=empty_db.owner_dsn, url="http://127.0.0.1:1"), command="bench", arguments=[*FEW, "--rate", "20"])
            wait_until(lambda: empty_db.query(WAITING, (empty_db.name,)), 60, "a statement to wait")
            act(one)
        holder.close()
        return one.wait(60), one.log[-1]

    return start


@pytest.mark.parametrize("when", [DELETE, LOAD])
def test_a_signal_ends_the_floor_and_the_load(empty_db, held_up, when):
    assert held_up(when, lambda one: one.send(signal.SIGINT)) == (75, "pgcourier: bench: stopped by a signal")
    assert empty_db.query(SCHEMAS) == []


def test_a_producer_that_loses_its_connection_ends_it(pg, empty_db, held_up):
    code, line = held_up(LOAD, lambda one: end_sessions(pg, empty_db))
    assert code == 69 and re.match("pgcourier: bench: an insert: .*terminating connection", line)
    assert empty_db.query(SCHEMAS) == []


def test_a_floor_that_cannot_connect_ends_it(pg, empty_db):
    pg.query(f"alter database {empty_db.name} connection limit 2")
    done = bench(empty_db, *FEW)
    assert done.returncode == 69 and done.stdout == ""
    assert re.search("^pgcourier: bench: the floor: database: .*too many connections", done.stderr.splitlines()[-1])
    assert empty_db.query(SCHEMAS) == []


def test_rows_that_do_not_add_up_are_no_result(empty_db):
    empty_db.query(MEDDLE.format(when="insert on %s for each row", body="if new.id = 7 then return null; end if; return new;"))
    done = bench(empty_db, *FEW)
    assert done.returncode == 70 and done.stdout == ""
    assert done.stderr.endswith("pgcourier: bench: the floor drained 39 of 40 events\n")


def test_a_relay_that_cannot_be_started_ends_it(empty_db):
    """It wants more locks than the server has; nothing is filled for it."""
    done = bench(empty_db, *FEW, "--connections", "7")
    assert done.returncode == 78 and "lower keys_per_claim or connections" in done.stderr and "filled" not in done.stderr
    assert empty_db.query(SCHEMAS) == []


def test_a_bench_that_may_take_the_locks_of_others_is_refused(empty_db):
    """Half of the lock table is for everybody else."""
    slots, half = 64 * int(empty_db.value("show max_connections")), 32 * int(empty_db.value("show max_connections"))
    done = bench(empty_db, "--connections", "6", "--events", "200000", "--keys", "200000")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1)
    assert f"bench: its claims may come to hold 6144 locks, and the server has about {slots} for everybody" in done.stderr
    assert "lower --connections or --keys, or set max_locks_per_transaction = 123 and restart" in done.stderr
    done = bench(empty_db, "--connections", "6", "--events", "200000", "--keys", str(half + 1))
    assert done.returncode == 78 and f"may come to hold {half + 1} locks" in done.stderr
    assert empty_db.query(SCHEMAS) == []
    assert bench(empty_db, *FEW, "--connections", "6").returncode == 0  # 20 keys


def test_a_load_that_the_server_cannot_take_is_said_to_be_one(empty_db):
    done = bench(empty_db, "--events", "40", "--pairs", "1", "--rate", "1000000", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("The server took fewer inserts than the 1,000,000 events/s that were asked for.\n")
    assert re.search(r"^insert to delivery +[\d.]+ +[\d.]+   at [\d,]+ events/s$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("arguments, message", [
    (["--sink", "wed"], 'bench: {path} has no sink "wed"; did you mean "web"?'),
    (["--sink", "log"], 'bench: the queues others and theirs send to "a" and "b" of the sink log; say where to with --destination'),
    (["--sink", "cache"], "bench: the sink cache needs a destination; say where to with --destination"),
])
def test_a_sink_that_cannot_be_told_is_a_usage_error(empty_db, tmp_path, arguments, message):
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(dsn=empty_db.owner_dsn, url="http://127.0.0.1:1"))
    done = run_command("bench", "-c", str(path), *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (64, "", f"pgcourier: {message.format(path=path)}\n")


def test_a_sink_that_no_queue_uses_is_told_where_to_send(empty_db, tmp_path):
    path, lines = tmp_path / "pgcourier.yaml", tmp_path / "events.jsonl"
    path.write_text(f'database: "{empty_db.owner_dsn}"\nsinks: {{ log: {{ type: file, path: "{lines}" }}, stream: {{ type: redis, url: '
                    f'"redis://127.0.0.1:{free_port()}" }} }}\nqueues: {{ q: {{ sink: log }} }}\n')
    done = run_command("bench", "-c", str(path), "--sink", "stream", *FEW)
    assert (done.returncode, done.stderr) == (64, "pgcourier: bench: the sink stream needs a destination; say where to with --destination\n")
    done = run_command("bench", "-c", str(path), "--sink", "log", "--destination", "there", *FEW)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["destination"] for line in lines.read_text().splitlines()] == ["there"] * 40


@pytest.mark.parametrize("arguments, message", [
    (["-d", "x", "--events", "0"], "--events is a number from 1 to 100000000, not \"0\""),
    (["-d", "x", "--events", ""], "--events is a number from"), (["-d", "x", "--keys", "1k"], "--keys is a number from"),
    (["-d", "x", "--pairs", "100"], "--pairs is a number from 1 to 99"), (["-d", "x", "--rate", "9" * 30], "--rate is a number from"),
    (["-d", "x", "--sink", "web"], "give it with -c FILE"), (["-d", "x", "--destination", "a"], "give it with --sink NAME"),
    ([], "bench: give -c FILE or -d CONNINFO"),
])
def test_wrong_arguments_are_a_usage_error(arguments, message):
    done = run_command("bench", *arguments)
    assert done.returncode == 64 and done.stdout == "" and message in done.stderr


def test_a_role_that_may_not_make_a_schema_is_told_the_remedy(empty_db):
    empty_db.query(f"drop role if exists bench_nobody; create role bench_nobody login; revoke create on database {empty_db.name} from public")
    done = run_command("bench", "-d", f"{empty_db.owner_dsn} user=bench_nobody", *FEW)
    assert done.returncode == 77 and "fix: grant create on database" in done.stderr
    assert empty_db.query(SCHEMAS) == []


@pytest.mark.parametrize("how", ["--clean", "the next bench"])
def test_what_a_killed_bench_leaves_behind_is_dropped_and_one_under_way_is_not(empty_db, hanging, how):
    one = hanging()
    one.pause()
    ((schema,),) = empty_db.query(SCHEMAS)
    assert bench(empty_db, *FEW).returncode == 0
    assert empty_db.query(SCHEMAS) == [(schema,)]
    one.kill()
    wait_until(lambda: not empty_db.value(SESSIONS, (empty_db.name,)), 60, "its sessions to end")
    done = bench(empty_db, *(["--clean"] if how == "--clean" else FEW))
    assert done.returncode == 0
    assert done.stderr.startswith(f"dropping the schema {schema}, which a bench has left behind\n")
    assert empty_db.query(SCHEMAS) == []


def test_a_schema_that_stays_in_use_is_named_and_the_others_are_dropped(empty_db, hanging):
    one = hanging()
    one.pause()
    ((schema,),) = empty_db.query(SCHEMAS)
    pid = empty_db.value("select pid from pg_locks where locktype = 'advisory' and classid::bigint = 3075336295")
    empty_db.query("""create schema pgcourier_bench_99999999_00000000 authorization shop_owner;
                      comment on schema pgcourier_bench_99999999_00000000 is 'pgcourier bench'""")
    done = bench(empty_db, "--clean")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr == (
        "dropping the schema pgcourier_bench_99999999_00000000, which a bench has left behind\n"
        f"pgcourier: bench: the schema {schema} is in use by a bench of shop_owner: wait for its end, or end it with "
        f"select pg_terminate_backend({pid}), and repeat pgcourier bench --clean\n")
    assert empty_db.query(SCHEMAS) == [(schema,)]
    one.resume()
    assert one.stop(signal.SIGINT, 60) == 75 and empty_db.query(SCHEMAS) == []


def test_what_a_bench_drops_itself_meanwhile_is_not_reported(empty_db, relay, hanging):
    one = hanging()
    one.pause()
    clean = relay(CONFIG.format(dsn=empty_db.owner_dsn, url="http://127.0.0.1:1"), command="bench", arguments=["--clean"])
    wait_until(lambda: empty_db.value("select count(*) from pg_stat_activity where application_name = 'pgcourier/bench' and query ~ 'try_advisory' and pid <> all (select pid from pg_locks where locktype = 'advisory')"), 60, "the lock to be asked for")
    one.send(signal.SIGINT)
    one.resume()
    assert one.wait(60) == 75
    assert clean.wait(60) == 0 and clean.log == []


def test_a_bench_that_is_killed_in_the_middle_of_a_fill_can_be_cleaned_at_once(empty_db, relay, http):
    """Its server process has much to do before it would write to the client."""
    one = relay(CONFIG.format(dsn=empty_db.owner_dsn, url=http.url), command="bench", arguments=["--events", "5000000"])
    wait_until(lambda: empty_db.value(FILLING, (empty_db.name,)), 60, "the fill")
    ((schema,),) = empty_db.query(SCHEMAS)
    one.kill()
    done = bench(empty_db, "--clean")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"dropping the schema {schema}, which a bench has left behind\n"
    assert empty_db.query(SCHEMAS) == []


def test_a_signal_ends_a_clean_that_waits(empty_db, relay):
    empty_db.query("""create schema pgcourier_bench_99999999_00000000 authorization shop_owner;
                      comment on schema pgcourier_bench_99999999_00000000 is 'pgcourier bench';
                      create table pgcourier_bench_99999999_00000000.t ()""")
    empty_db.query(f"alter database {empty_db.name} set statement_timeout = '500ms'")  # is not for that
    with closing(empty_db.connect(autocommit=False)) as user:
        user.cursor().execute("select from pgcourier_bench_99999999_00000000.t")
        one = relay(CONFIG.format(dsn=empty_db.owner_dsn, url="http://127.0.0.1:1"), command="bench", arguments=["--clean"])
        wait_until(lambda: empty_db.value(f"{DROPPING} and clock_timestamp() - query_start > '1 s'", (empty_db.name,)), what="the drop to wait")
        assert one.stop(signal.SIGINT) == 75
        wait_until(lambda: not empty_db.value(DROPPING, (empty_db.name,)), what="the server to give the drop up")
    assert one.log == ["dropping the schema pgcourier_bench_99999999_00000000, which a bench has left behind", "pgcourier: bench: stopped by a signal"]
    assert len(empty_db.query(SCHEMAS)) == 1


def test_a_signal_while_it_drops_its_own_schema_does_not_leave_it_behind(pg, empty_db, relay):
    """The first drop would never end by itself."""
    pg.query("""create sequence public.drops; grant usage on sequence public.drops to public;
                create function public.linger() returns event_trigger language plpgsql as $$ begin
                    if nextval('public.drops') = 1 then perform pg_sleep(600); end if; end $$;
                create event trigger linger on ddl_command_start when tag in ('DROP SCHEMA') execute function public.linger()""",
             dbname=empty_db.name)
    one = relay(CONFIG.format(dsn=empty_db.owner_dsn, url="http://127.0.0.1:1"), command="bench", arguments=FEW)
    wait_until(lambda: empty_db.value(DROPPING, (empty_db.name,)), 60, "the drop")
    assert one.logged("^40 events of 300 bytes"), "the numbers come before it"
    assert one.stop(signal.SIGINT) == 0
    assert empty_db.query(SCHEMAS) == []


def test_a_schema_with_such_a_name_that_no_bench_made_is_left_alone(empty_db):
    empty_db.query("create schema pgcourier_bench_1_00000000")
    done = bench(empty_db, "--clean")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(empty_db.query(SCHEMAS)) == 1


def test_what_another_role_left_behind_is_named(empty_db):
    empty_db.query("create schema pgcourier_bench_1_00000000; comment on schema pgcourier_bench_1_00000000 is 'pgcourier bench'")
    done = bench(empty_db, "--clean")
    assert done.returncode == 0 and "pgcourier_bench_1_00000000 is left over from a bench and belongs to postgres; as that role" in done.stderr
    assert len(empty_db.query(SCHEMAS)) == 1


def end_sessions(pg, db):
    pg.query("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and application_name = 'pgcourier/bench'", (db.name,))


def test_a_connection_that_is_lost_is_made_anew_to_drop_the_schema(pg, empty_db, hanging):
    one = hanging()
    end_sessions(pg, empty_db)
    assert one.stop(signal.SIGINT, 60) == 75
    assert empty_db.query(SCHEMAS) == []


def test_a_database_that_is_gone_for_good_leaves_the_schema_and_a_word_about_it(pg, empty_db, hanging):
    one = hanging()
    ((schema,),) = empty_db.query(SCHEMAS)
    pg.query(f"alter database {empty_db.name} allow_connections false")
    end_sessions(pg, empty_db)
    assert one.stop(signal.SIGINT, 60) == 75
    assert re.search(rf"^pgcourier: bench: the schema {schema} could not be dropped and is left behind: .*pgcourier bench --clean$", one.log[-1])
    assert "stopped by a signal" in one.log[-2]
    pg.query(f"alter database {empty_db.name} allow_connections true")
    assert bench(empty_db, "--clean").returncode == 0 and empty_db.query(SCHEMAS) == []


@pytest.fixture
def unanswered(pg, empty_db):
    """Runs a bench that never hears of the COMMIT that makes its schema."""

    def run():
        with Proxy(pg.port) as proxy:
            proxy.cut_before(b"COMMIT", DOWN, skip=1)  # after that of every command which connects
            return run_command("bench", "-d", f"{empty_db.owner_dsn} host=127.0.0.1 port={proxy.port}", *FEW)

    return run


def test_a_schema_whose_making_was_not_answered_is_dropped(empty_db, unanswered):
    done = unanswered()
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (69, "", 1), done.stderr
    assert done.stderr.startswith("pgcourier: bench: ")
    assert empty_db.query(SCHEMAS) == []


def test_a_schema_whose_making_was_not_answered_and_that_cannot_be_dropped_is_named(empty_db, unanswered):
    empty_db.query(f"""
        create function let_nobody_in() returns event_trigger language plpgsql security definer as $$
        begin execute 'alter database {empty_db.name} connection limit 0'; end $$;
        create event trigger let_nobody_in on ddl_command_end when tag in ('CREATE SCHEMA') execute function let_nobody_in()""")
    done = unanswered()
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (75, "", 2), done.stderr
    ((schema,),) = empty_db.query(SCHEMAS)
    assert re.search(rf"^pgcourier: bench: the schema {schema} could not be dropped and is left behind: .*pgcourier bench --clean$", done.stderr, re.MULTILINE)
    empty_db.query(f"drop event trigger let_nobody_in; alter database {empty_db.name} connection limit -1")
    assert bench(empty_db, "--clean").returncode == 0 and empty_db.query(SCHEMAS) == []


def test_a_standby_is_refused(pg):
    with Standby(pg) as standby:
        done = run_command("bench", "-d", standby.dsn(user="shop_owner"), *FEW)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (69, "", 1)
    assert "the server is a standby, or the session is read-only" in done.stderr and "target_session_attrs=read-write" in done.stderr


def test_a_read_only_session_is_refused(empty_db):
    done = run_command("bench", "-d", empty_db.owner_dsn + " options='-c default_transaction_read_only=on'", *FEW)
    assert done.returncode == 69 and "the session is read-only" in done.stderr


def test_a_pooler_is_refused(pg, empty_db):
    with PgBouncer(pg, user="shop_owner") as pooler:
        done = run_command("bench", "-d", pooler.dsn(empty_db.name, "shop_owner"), *FEW)
    assert done.returncode == 78 and "a pooler shares the session" in done.stderr and done.stderr.count("\n") == 1
    assert empty_db.query(SCHEMAS) == []


def test_a_database_that_publishes_all_its_tables_is_refused(empty_db):
    empty_db.query("create publication everything for all tables")
    done = bench(empty_db, *FEW)
    assert done.returncode == 78 and 'the publication "everything" of the database' in done.stderr and "with -d" in done.stderr
    assert empty_db.query(SCHEMAS) == []


def test_hangups_that_are_ignored_stay_ignored(empty_db, http, tmp_path):
    """As after nohup."""
    http.rule(lambda request: True, Reply(action=HANG))
    path = tmp_path / "pgcourier.yaml"
    path.write_text(CONFIG.format(dsn=empty_db.owner_dsn, url=http.url))
    command = ["env", "--ignore-signal=HUP", binary(), "bench", "-c", str(path), "--sink", "web", *FEW]
    one = Process(command, str(tmp_path / "log"), env=environment())
    try:
        wait_until(lambda: http.requests, 60, "an event to be sent")
        one.send(signal.SIGHUP)
        http.reset()
        http.release()
        assert one.wait(60) == 0, one.log_tail()
    finally:
        one.end()
