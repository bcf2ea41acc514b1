/* What is due when on a queue's other connection, and what becomes of lanes whose queue or key is paused. */
#include "relay/side/upkeep.h"

#include "ordering/result.h"
#include "sql_text.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/scripted_db.h"
#include "tests/unit/stage/upkeep_stage.h"

#include <stdlib.h>

START_TEST(paused_queue_gives_back_what_is_not_on_its_way)
{
    first->in_flight = 1;
    look((const char *const[]){NULL}, 1);
    ck_assert(queue->pause.on && queue->pause.known);
    ck_assert_int_eq(first->state, LANE_OPEN);
    upkeep_hold(queue, NOW);
    ck_assert_int_eq(first->state, LANE_STOPPED);
    ck_assert_int_eq(second->state, LANE_FINISHED);
    ck_assert_int_eq(alone->state, LANE_FINISHED);
    ck_assert_int_eq(second->outcome, LANE_RELEASED);
    first->in_flight = 0;
}
END_TEST

START_TEST(queue_that_is_resumed_is_looked_at_at_once)
{
    look((const char *const[]){NULL}, 1);
    queue->pace.poll_at = NOW + SECOND_US;
    look((const char *const[]){NULL}, 1);
    ck_assert_int_eq(queue->pace.poll_at, NOW + SECOND_US);
    look(NULL, 0);
    ck_assert(!queue->pause.on);
    ck_assert_int_eq(queue->pace.poll_at, NOW);
    upkeep_hold(queue, NOW);
    ck_assert_int_eq(first->state, LANE_OPEN);
}
END_TEST

START_TEST(look_from_before_a_pause_does_not_end_it)
{
    look(NULL, 0);
    ck_assert_int_gt(queue->upkeep->due_at[UPKEEP_LOOK], NOW);
    queue->upkeep->began_at = NOW - 1;
    queue_found_paused(queue, NOW);
    upkeep_hear(queue);
    ck_assert(upkeep_next(queue, true, NOW) && queue->upkeep->task == UPKEEP_LOOK); /* who has paused it, and why */
    look(NULL, 0);
    ck_assert(queue->pause.on);
    queue->upkeep->began_at = NOW + 1;
    look(NULL, 0);
    ck_assert(!queue->pause.on);
}
END_TEST

START_TEST(paused_key_is_given_back_and_no_other)
{
    look((const char *const[]){"b", "nobody"}, 2);
    ck_assert(!queue->pause.on);
    ck_assert_int_eq(first->state, LANE_OPEN);
    ck_assert_int_eq(second->state, LANE_FINISHED);
    ck_assert_int_eq(alone->state, LANE_OPEN);
    look((const char *const[]){"b"}, 1); /* again: its lane is no longer open */
    ck_assert_int_eq(second->state, LANE_FINISHED);
}
END_TEST

START_TEST(look_comes_first_and_twice_a_second)
{
    stage.config.after = AFTER_ARCHIVE;
    open_again();
    ck_assert(!queue->pause.known);
    ck_assert_int_eq(upkeep_due_at(queue), 0);
    ck_assert(upkeep_next(queue, true, NOW));
    struct statement st = upkeep_begin(queue, arena, NOW);
    ck_assert_ptr_eq(st.sql, sql_paused_look);
    ck_assert_str_eq(st.values[0], "orders");
    ck_assert(!upkeep_next(queue, true, NOW));
    ck_assert(upkeep_next(queue, false, NOW));
    st = upkeep_begin(queue, arena, NOW);
    ck_assert_ptr_eq(st.sql, sql_archive_prepare);
    upkeep_take(queue, NULL, NOW); /* its answer says nothing */
    ck_assert(upkeep_next(queue, false, NOW));
    st = upkeep_begin(queue, arena, NOW);
    ck_assert_ptr_eq(st.sql, sql_archive_expire);
    ck_assert_ptr_null(st.values[1]); /* kept for ever, and that is said too */
    ck_assert(!upkeep_next(queue, false, NOW));
    ck_assert_int_eq(upkeep_due_at(queue), NOW + 500 * MS_US);
}
END_TEST

static void put_bigint(PGresult *res, int column, int64_t value)
{
    uint64_t big = htobe64((uint64_t)value);
    char bytes[sizeof big];
    memcpy(bytes, &big, sizeof big);
    ck_assert(PQsetvalue(res, 0, column, bytes, sizeof bytes));
}

/* `removed` NULL: nothing was; `again_us` 0: nothing is left. */
static void expire(const char *removed, int64_t again_us)
{
    static char names[2][8] = {"removed", "again"};
    PGresAttDesc columns[2] = {{.name = names[0]}, {.name = names[1]}};
    PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert(PQsetResultAttrs(res, 2, columns));
    add_text(res, 0, 0, removed);
    if (again_us > 0)
        put_bigint(res, 1, again_us);
    else
        add_text(res, 0, 1, NULL);
    struct statement st = upkeep_begin(queue, arena, NOW);
    ck_assert_int_eq(strtoll(st.values[1], NULL, 10), 30 * SECOND_US);
    upkeep_take(queue, res, NOW);
    PQclear(res);
}

START_TEST(archive_is_gone_through_step_by_step)
{
    stage.config.after = AFTER_ARCHIVE;
    stage.config.archive_retention_us = 30 * SECOND_US;
    open_again();
    queue->upkeep->task = UPKEEP_EXPIRE;
    expire(NULL, SECOND_US);
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_EXPIRE], NOW + SECOND_US);
    expire("outbox.archive_20261023", SECOND_US);
    expire(NULL, 0);
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_EXPIRE], NOW + 3600 * SECOND_US);
    ck_assert_uint_eq(queue->metrics.removed, 1);
}
END_TEST

/* The task under way finds these numbers; 0: the second one is null. */
static void answer(int64_t one, int64_t other)
{
    static char names[2][8] = {"one", "other"};
    PGresAttDesc columns[2] = {{.name = names[0]}, {.name = names[1]}};
    PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert(PQsetResultAttrs(res, 2, columns));
    put_bigint(res, 0, one);
    if (other)
        put_bigint(res, 1, other);
    upkeep_take(queue, res, NOW);
    PQclear(res);
}

/* A look for what has become due. */
static void due(int64_t found, int64_t looked)
{
    queue->upkeep->task = UPKEEP_DUE;
    answer(found, looked);
}

START_TEST(what_becomes_due_is_looked_for_from_the_end_of_the_last_look)
{
    static char column[] = "at";
    stage.config.columns.not_before = column;
    open_again();
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_DUE], INSTANT_NEVER);
    stage.config.delayed = DELAYED_PASS;
    open_again();
    static char sql[] = "look";
    queue->sql.due.plain = sql;
    queue->upkeep->task = UPKEEP_DUE;
    struct statement st = upkeep_begin(queue, arena, NOW);
    ck_assert_ptr_eq(st.sql, sql);
    ck_assert_ptr_null(st.values[1]);
    queue->pace.poll_at = NOW + SECOND_US;
    due(0, 5000);
    ck_assert_int_eq(queue->pace.poll_at, NOW + SECOND_US);
    ck_assert_str_eq(upkeep_begin(queue, arena, NOW).values[1], "5000");
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_DUE], NOW + 250 * MS_US);
    due(10000, 6000); /* there is more */
    ck_assert_int_eq(queue->pace.poll_at, NOW);
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_DUE], NOW);
    ck_assert_int_eq(queue->upkeep->due_to, 5000);
}
END_TEST

/* A look for what others waited for; `last` 0: it has come to the end. */
static void after(int64_t woken, int64_t last)
{
    queue->upkeep->task = UPKEEP_AFTER;
    answer(woken, last);
}

START_TEST(what_others_wait_for_is_asked_about_in_turns)
{
    static char sql[] = "look";
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_AFTER], INSTANT_NEVER);
    queue->sql.after.plain = sql;
    open_again();
    queue->upkeep->task = UPKEEP_AFTER;
    struct statement st = upkeep_begin(queue, arena, NOW);
    ck_assert_ptr_eq(st.sql, sql);
    ck_assert_str_eq(st.values[1], "-9223372036854775808");
    queue->pace.poll_at = NOW + SECOND_US;
    after(0, 77);
    ck_assert_int_eq(queue->pace.poll_at, NOW + SECOND_US);
    ck_assert_str_eq(upkeep_begin(queue, arena, NOW).values[1], "77");
    after(2, 0);
    ck_assert_int_eq(queue->pace.poll_at, NOW);
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_AFTER], NOW + 200 * MS_US);
    after(5000, 77); /* there is more */
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_AFTER], NOW);
    after(0, 0);
    ck_assert_str_eq(upkeep_begin(queue, arena, NOW).values[1], "-9223372036854775808");
}
END_TEST

/* A look that finds that there is something to do. */
static void look_finds(int64_t due)
{
    static char names[4][8] = {"key", "by", "reason", "due"};
    PGresAttDesc columns[4] = {{.name = names[0]}, {.name = names[1]}, {.name = names[2]}, {.name = names[3]}};
    PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert(PQsetResultAttrs(res, 4, columns));
    put_bigint(res, 3, due);
    queue->upkeep->task = UPKEEP_LOOK;
    upkeep_take(queue, res, NOW);
    PQclear(res);
    ck_assert(!queue->pause.on);
    queue->upkeep->due_at[UPKEEP_LOOK] = INSTANT_NEVER;
    queue->pace.poll_at = NOW + SECOND_US;
}

START_TEST(schedules_run_when_a_look_has_found_one_that_is_due)
{
    static char names[3][9] = {"inserted", "failed", "more"};
    PGresAttDesc columns[3] = {{.name = names[0]}, {.name = names[1]}, {.name = names[2]}};
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_SCHEDULE], INSTANT_NEVER);
    for (int64_t more = 1; more >= 0; more--) {
        look_finds(1);
        ck_assert(upkeep_next(queue, false, NOW));
        ck_assert_ptr_eq(upkeep_begin(queue, arena, NOW).sql, sql_schedule_run);
        PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
        ck_assert(PQsetResultAttrs(res, 3, columns));
        put_bigint(res, 0, 3 * more);
        add_text(res, 0, 1, more ? "a: no" : NULL);
        put_bigint(res, 2, more);
        upkeep_take(queue, res, NOW);
        PQclear(res);
        ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_SCHEDULE], more ? NOW : INSTANT_NEVER);
        ck_assert_int_eq(queue->pace.poll_at, more ? NOW : NOW + SECOND_US);
    }
    ck_assert_uint_eq(queue->metrics.scheduled, 3);
}
END_TEST

/* In a queue without leases of its own, too. */
START_TEST(relays_are_missed_when_a_look_has_found_what_one_has_leased)
{
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_LEASES], INSTANT_NEVER);
    for (int64_t ended = 0; ended <= 1; ended++) {
        look_finds(2);
        ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_SCHEDULE], INSTANT_NEVER);
        ck_assert(upkeep_next(queue, true, NOW));
        ck_assert_ptr_eq(upkeep_begin(queue, arena, NOW).sql, sql_lease_end_ownerless);
        answer(ended, 0);
        ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_LEASES], INSTANT_NEVER);
        ck_assert_int_eq(queue->pace.poll_at, ended ? NOW : NOW + SECOND_US);
    }
}
END_TEST

START_TEST(queue_with_a_window_is_closed_until_it_is_known_to_be_open)
{
    static char window[] = "23:00-06:00", zone[] = "Europe/Berlin";
    ck_assert(!queue->window.closed && queue->window.known); /* it has none */
    stage.config.window = window;
    stage.config.window_zone = zone;
    open_again();
    ck_assert(queue->window.closed && !queue->window.known);
    queue->upkeep->task = UPKEEP_WINDOW;
    struct statement st = upkeep_begin(queue, arena, NOW);
    ck_assert_ptr_eq(st.sql, sql_window_look);
    ck_assert_str_eq(st.values[0], "23:00-06:00");
    ck_assert_str_eq(st.values[1], "Europe/Berlin");
    answer(0, 0);
    ck_assert(queue->window.closed && queue->window.known);
    queue->pace.poll_at = NOW + SECOND_US;
    answer(1, 0);
    ck_assert(!queue->window.closed);
    ck_assert_int_eq(queue->pace.poll_at, NOW);
    queue->pace.poll_at = NOW + SECOND_US;
    answer(0, 0);
    ck_assert(queue->window.closed);
    ck_assert_int_eq(queue->pace.poll_at, NOW + SECOND_US);
    upkeep_hold(queue, NOW); /* what was claimed is finished */
    ck_assert_int_eq(first->state, LANE_OPEN);
}
END_TEST

static void purge(int64_t ended)
{
    struct statement st = upkeep_begin(queue, arena, NOW);
    ck_assert_int_eq(strtoll(st.values[1], NULL, 10), 60 * SECOND_US);
    ck_assert_int_eq(strtoll(st.values[2], NULL, 10), 1000);
    answer(ended, 0);
}

START_TEST(dead_letters_go_a_thousand_at_a_time)
{
    stage.config.dead_retention_us = 60 * SECOND_US;
    open_again();
    queue->upkeep->task = UPKEEP_PURGE;
    purge(1000);
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_PURGE], NOW + SECOND_US);
    ck_assert_uint_eq(queue->upkeep->purged, 1000);
    purge(7);
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_PURGE], NOW + 3600 * SECOND_US);
    ck_assert_uint_eq(queue->upkeep->purged, 0); /* said */
    ck_assert_uint_eq(queue->metrics.purged, 1007);
    purge(0);
    ck_assert_uint_eq(queue->metrics.purged, 1007);
}
END_TEST

START_TEST(task_that_fails_is_tried_again_after_a_while)
{
    struct error err;
    error_set(&err, ERROR_PERMISSION, "no");
    ck_assert(upkeep_next(queue, true, NOW));
    upkeep_begin(queue, arena, NOW);
    upkeep_end(queue, &err, NOW);
    ck_assert_int_eq(upkeep_due_at(queue), NOW + SECOND_US);
    ck_assert(!queue->pause.known);
}
END_TEST

static const struct {
    int64_t took_us;
    bool fails;
    int64_t rest_us;
} rests[] = {{MS_US, false, 500 * MS_US},
             {2 * SECOND_US, false, 2 * SECOND_US},
             {MS_US, true, SECOND_US},
             {30 * SECOND_US, true, 30 * SECOND_US}};

START_TEST(task_rests_from_its_end_and_for_as_long_as_it_took)
{
    struct error err;
    error_set(&err, ERROR_TIMEOUT, "no");
    ck_assert(upkeep_next(queue, true, NOW));
    upkeep_begin(queue, arena, NOW);
    upkeep_end(queue, rests[_i].fails ? &err : NULL, NOW + rests[_i].took_us);
    ck_assert_int_eq(upkeep_due_at(queue), NOW + rests[_i].took_us + rests[_i].rest_us);
}
END_TEST

START_TEST(task_that_has_more_to_do_rests_for_as_long_as_it_took)
{
    static char column[] = "at", sql[] = "look";
    stage.config.columns.not_before = column;
    stage.config.delayed = DELAYED_PASS;
    open_again();
    queue->sql.due.plain = sql;
    queue->upkeep->task = UPKEEP_DUE;
    upkeep_begin(queue, arena, NOW - SECOND_US);
    due(10000, 6000);
    upkeep_end(queue, NULL, NOW);
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_DUE], NOW + SECOND_US);
}
END_TEST

START_TEST(queue_of_another_schema_is_never_paused)
{
    stage.config.state = "bench";
    open_again();
    ck_assert(queue->pause.known);
    ck_assert_int_eq(upkeep_due_at(queue), INSTANT_NEVER);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("upkeep");
    TCase *tcase = tcase_create("upkeep");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, paused_queue_gives_back_what_is_not_on_its_way);
    tcase_add_test(tcase, queue_that_is_resumed_is_looked_at_at_once);
    tcase_add_test(tcase, look_from_before_a_pause_does_not_end_it);
    tcase_add_test(tcase, paused_key_is_given_back_and_no_other);
    tcase_add_test(tcase, look_comes_first_and_twice_a_second);
    tcase_add_test(tcase, archive_is_gone_through_step_by_step);
    tcase_add_test(tcase, what_becomes_due_is_looked_for_from_the_end_of_the_last_look);
    tcase_add_test(tcase, what_others_wait_for_is_asked_about_in_turns);
    tcase_add_test(tcase, relays_are_missed_when_a_look_has_found_what_one_has_leased);
    tcase_add_test(tcase, schedules_run_when_a_look_has_found_one_that_is_due);
    tcase_add_test(tcase, queue_with_a_window_is_closed_until_it_is_known_to_be_open);
    tcase_add_test(tcase, dead_letters_go_a_thousand_at_a_time);
    tcase_add_test(tcase, task_that_fails_is_tried_again_after_a_while);
    tcase_add_loop_test(tcase, task_rests_from_its_end_and_for_as_long_as_it_took, 0,
                        (int)(sizeof rests / sizeof rests[0]));
    tcase_add_test(tcase, task_that_has_more_to_do_rests_for_as_long_as_it_took);
    tcase_add_test(tcase, queue_of_another_schema_is_never_paused);
    return run_suite(suite);
}
