/* A bench's connections that fail, and its schema: the database is played here. */
#include "relay/bench/bench_floor.h"

#include "relay/bench/bench_load.h"
#include "relay/bench/bench_schema.h"
#include "relay/postgres/query.h"
#include "sql_text.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/scripted_db.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define EVENTS 3

static struct bench bench;
static struct config config;
static struct error err;
static double per_second;
static int signals[2];
static const char *unanswered; /* part of the statement that fails */
static int rollbacks;

PGresult *__wrap_query_or_cancel(const struct asker *asker, const char *sql, int count, const char *const *params,
                                 struct error *e);
bool __wrap_query_script(PGconn *conn, const char *what, const char *sql, struct error *e);

static bool is_unanswered(const char *sql, struct error *e)
{
    bool fails = unanswered && strstr(sql, unanswered);
    if (fails)
        error_set(e, ERROR_UNREACHABLE, "no answer");
    return fails;
}

static void put_row(PGresult *result, const char *text)
{
    char value[16];
    ck_assert_int_eq(PQsetvalue(result, PQntuples(result), 0, value, snprintf(value, sizeof value, "%s", text)), 1);
}

static PGresult *rows_of(const char *text, int count)
{
    static char name[] = "text";
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc columns[] = {{.name = name}, {.name = name}, {.name = name}};
    ck_assert_int_eq(PQsetResultAttrs(result, 3, columns), 1);
    for (int i = 0; i < count; i++)
        put_row(result, text);
    return result;
}

PGresult *__wrap_query_or_cancel(const struct asker *asker, const char *sql, int count, const char *const *params,
                                 struct error *e)
{
    (void)asker, (void)count, (void)params;
    return is_unanswered(sql, e) ? NULL : rows_of("t", 1);
}

bool __wrap_query_script(PGconn *conn, const char *what, const char *sql, struct error *e)
{
    (void)conn, (void)what;
    rollbacks += strcmp(sql, "rollback") == 0;
    return !is_unanswered(sql, e);
}

static void set_up(void)
{
    config = (struct config){.database = NULL};
    bench = (struct bench){
        .options = {.events = EVENTS, .keys = 1, .payload_bytes = 64, .connections = 1, .rate = 1000, .seconds = 1},
        .config = &config,
        .schema = "bench"};
    ck_assert_int_eq(pipe(signals), 0);
    bench.signal_fd = signals[0];
    ck_assert_int_eq(fcntl(signals[0], F_SETFL, O_NONBLOCK), 0);
    unanswered = NULL;
    rollbacks = 0;
    script_reset();
    script.hurried = true;
}

static void tear_down(void)
{
    script_done();
    close(signals[0]);
    close(signals[1]);
}

static void brings_rows(int count)
{
    script_brings(DB_RESULT);
    script.events[script.event_count - 1].result.res = rows_of("1", count);
    script_brings(DB_ROUND_END);
}

/* The connection, and its session's set-up. */
static void comes_up(void)
{
    script_brings(DB_UP);
    brings_rows(1);
    script_brings(DB_NOTHING);
}

static void assert_fails(bool done, const char *text)
{
    ck_assert(!done);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

/* ---- the floor ---- */

START_TEST(floor_counts_what_it_takes_out)
{
    comes_up();
    brings_rows(EVENTS);
    brings_rows(0);
    ck_assert_msg(bench_floor(&bench, &per_second, &err), "%s", err.text);
    ck_assert(per_second > 0);
    ck_assert_uint_eq(script.sends, 6); /* three rounds of a statement */
}
END_TEST

static const struct {
    int64_t payload_bytes, rows;
} batches[] = {{64, 1000}, {67108, 1000}, {67109, 999}, {10000000, 6}, {INT64_C(1) << 26, 1}, {INT64_C(1) << 40, 1}};

START_TEST(batch_of_large_payloads_has_fewer_rows)
{
    ck_assert_int_eq(bench_floor_rows(batches[_i].payload_bytes), batches[_i].rows);
    bench.options.payload_bytes = batches[_i].payload_bytes;
    comes_up();
    brings_rows(EVENTS);
    brings_rows(0);
    ck_assert_msg(bench_floor(&bench, &per_second, &err), "%s", err.text);
}
END_TEST

START_TEST(floor_that_finds_another_number_of_events_is_a_defect)
{
    comes_up();
    brings_rows(EVENTS - 1);
    brings_rows(0);
    assert_fails(bench_floor(&bench, &per_second, &err), "bench: the floor drained 2 of 3 events");
    ck_assert_int_eq(err.kind, ERROR_INTERNAL);
}
END_TEST

START_TEST(floor_without_a_connection_is_an_error)
{
    script_brings(DB_DOWN);
    assert_fails(bench_floor(&bench, &per_second, &err), "bench: the floor: gone");
}
END_TEST

START_TEST(floor_that_loses_its_connection_is_an_error)
{
    comes_up();
    script_brings(DB_DOWN);
    assert_fails(bench_floor(&bench, &per_second, &err), "bench: the floor: gone");
}
END_TEST

START_TEST(batch_that_is_refused_or_cannot_be_sent_is_an_error)
{
    comes_up();
    script.fails_at = (size_t)_i;
    if (_i == 0)
        script_brings_result(0, PGRES_FATAL_ERROR);
    else
        brings_rows(1);
    assert_fails(bench_floor(&bench, &per_second, &err), _i ? "cannot be sent" : "bench: the floor: no message");
}
END_TEST

START_TEST(signal_ends_the_floor)
{
    struct signalfd_siginfo info = {0};
    ck_assert_int_eq(write(signals[1], &info, sizeof info), sizeof info);
    assert_fails(bench_floor(&bench, &per_second, &err), "stopped by a signal");
    ck_assert(bench.stop_signalled);
}
END_TEST

/* ---- the steady load ---- */

static struct bench_load *new_load(void)
{
    struct bench_load *load = bench_load_new(&bench);
    bench_load_begin(load, SECOND_US);
    return load;
}

static const struct {
    enum db_event event;
    size_t fails_at;
    const char *text;
} load_failures[] = {{DB_DOWN, 0, "bench: an insert: gone"},
                     {DB_RESULT, 0, "bench: an insert: no message"},
                     {DB_NOTHING, 1, "cannot be sent"},
                     {DB_NOTHING, 2, "cannot be sent"}};

START_TEST(insert_that_fails_ends_the_load)
{
    struct bench_load *load = new_load();
    if (load_failures[_i].event == DB_RESULT)
        script_brings_result(0, PGRES_FATAL_ERROR);
    else
        script_brings(load_failures[_i].event);
    script.fails_at = load_failures[_i].fails_at;
    assert_fails(bench_load_turn(load, NULL, SECOND_US, &err), load_failures[_i].text);
    bench_load_free(load);
}
END_TEST

/* ---- the schema ---- */

START_TEST(server_that_says_nothing_of_itself_is_not_benched)
{
    struct bench_server server;
    unanswered = "server_version";
    assert_fails(bench_schema_check(&bench, &server, &err), "no answer");
}
END_TEST

START_TEST(leftovers_whose_lock_cannot_be_asked_for_stay)
{
    unanswered = "advisory";
    assert_fails(bench_schema_clean(&bench, true, &err), "no answer");
}
END_TEST

START_TEST(schema_is_made_only_under_its_lock)
{
    unanswered = "advisory";
    assert_fails(bench_schema_open(&bench, &err), "no answer");
    unanswered = "drop schema";
    ck_assert_msg(bench_schema_close(&bench, &err), "nothing was made, and nothing is left behind");
}
END_TEST

START_TEST(schema_that_cannot_be_made_leaves_no_transaction_open)
{
    unanswered = "create schema";
    assert_fails(bench_schema_open(&bench, &err), "no answer");
    ck_assert_int_eq(rollbacks, 1);
    ck_assert(bench.made);
}
END_TEST

#define COUNT(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

int main(void)
{
    Suite *suite = suite_create("bench");
    TCase *tcase = tcase_create("bench");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, floor_counts_what_it_takes_out);
    tcase_add_loop_test(tcase, batch_of_large_payloads_has_fewer_rows, 0, COUNT(batches));
    tcase_add_test(tcase, floor_that_finds_another_number_of_events_is_a_defect);
    tcase_add_test(tcase, floor_without_a_connection_is_an_error);
    tcase_add_test(tcase, floor_that_loses_its_connection_is_an_error);
    tcase_add_loop_test(tcase, batch_that_is_refused_or_cannot_be_sent_is_an_error, 0, 7);
    tcase_add_test(tcase, signal_ends_the_floor);
    tcase_add_loop_test(tcase, insert_that_fails_ends_the_load, 0, COUNT(load_failures));
    tcase_add_test(tcase, server_that_says_nothing_of_itself_is_not_benched);
    tcase_add_test(tcase, leftovers_whose_lock_cannot_be_asked_for_stay);
    tcase_add_test(tcase, schema_is_made_only_under_its_lock);
    tcase_add_test(tcase, schema_that_cannot_be_made_leaves_no_transaction_open);
    return run_suite(suite);
}
