/* What the unordered strategy asks, reads and settles. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/unordered_stage.h"

START_TEST(claim_locks_then_reads_row_by_row_then_lets_go_of_its_snapshot)
{
    const int64_t busy[] = {3};
    struct claim_request request = {.max_keys = 10, .busy_keyless_ids = busy, .busy_keyless_count = 1, .draw = 1};
    ck_assert_uint_eq(ordering_unordered.claim(o, &request, 0, arena, statements, &plan), 3);
    ck_assert_int_eq(statements[0].count, PARAMETERS);
    ck_assert_int_eq(parameter(PLACES), 10);
    ck_assert_int_ge(parameter(ROWS), 10);
    ck_assert_int_eq(parameter(SHARE), 10);
    ck_assert_int_eq(parameter(LAST), 0);
    ck_assert_str_eq(statements[0].values[QUEUE - 1], "tasks");
    ck_assert_int_eq(statements[1].count, 2);
    ck_assert(statements[1].by_row && !statements[0].by_row);
    ck_assert_ptr_nonnull(strstr(statements[2].sql, "set local"));
    ck_assert(!o->locks_rows);
    open_with(true, true);
    ck_assert(o->locks_rows);
}
END_TEST

START_TEST(without_a_priority_the_oldest_have_every_place_and_nothing_is_urgent)
{
    open_with(false, false);
    settle_ids(1000);
    claim_at(0);
    ck_assert_int_eq(parameter(SHARE), 100);
    leave_a_backlog(0);
    claim_at(0);
    ck_assert_int_eq(parameter(TOP_PRIORITY), INT64_MIN);
    ck_assert(!plan.from_top);
    ck_assert_uint_eq(ordering_unordered.probe(o, 0, arena, statements), 2); /* and nobody needs to know the first id */
}
END_TEST

START_TEST(both_ends_of_a_stretch_are_looked_at_as_one)
{
    settle_ids(1000);
    claim_at(0);
    ck_assert_int_eq(parameter(OLDEST_LO), INT64_MIN);
    ck_assert_int_eq(parameter(OLDEST_HI), 1000);
    ck_assert_int_eq(parameter(FRESH), 1000);
    ck_assert(take_result(0, lock_row(900)));
    finish(0);
    claim_at(0);
    ck_assert(plan.scan.sweeping);
}
END_TEST

START_TEST(newer_one_of_two_stretches_stays)
{
    settle_ids(1000);
    claim_at(0);
    ck_assert(take_result(0, lock_row(1000)));
    finish(0);
    ordering_unordered.released(o, 10, 20, 0);
    claim_at(0); /* takes over what was released */
    PGresult *res = lock_row(1000);
    set_bigint(res, OLDEST_LEFT, 15);
    ck_assert(take_result(0, res));
    taken_count = 1;
    finish(0);
    settle_ids(2000);
    claim_at(0);
    ck_assert_int_eq(parameter(OLDEST_LO), 15);
    ck_assert_int_eq(parameter(OLDEST_HI), 20);
    ordering_unordered.claim_failed(o, &plan);
    claim_at(0);
    ck_assert_int_eq(parameter(OLDEST_HI), 20);
    ck_assert(take_result(0, lock_row(1000)));
    finish(0);
    claim_at(0);
    ck_assert_int_eq(parameter(OLDEST_LO), 1001);
    ck_assert_int_eq(parameter(OLDEST_HI), 2000);
}
END_TEST

START_TEST(claim_goes_on_where_the_one_before_has_stopped_until_it_is_time_for_the_very_top)
{
    settle_ids(1000);
    claim_at(0);
    ck_assert(!plan.from_top);
    leave_a_backlog(0);
    claim_at(0);
    ck_assert(plan.from_top);
    ck_assert_int_eq(parameter(TOP_PRIORITY), INT64_MAX);
    PGresult *res = lock_row(1000);
    set_bigint(res, LEFT_PRIORITY, 5);
    set_bigint(res, LEFT_ID, 77);
    set_bigint(res, OLDEST_LEFT, 150);
    ck_assert(take_result(0, res));
    finish(0);
    claim_at(MS_US);
    ck_assert(!plan.from_top);
    ck_assert_int_eq(parameter(TOP_PRIORITY), 5);
    ck_assert_int_eq(parameter(TOP_ID), 77);
    res = lock_row(1000); /* looked at everything */
    set_bigint(res, OLDEST_LEFT, 200);
    ck_assert(take_result(0, res));
    finish(MS_US);
    claim_at(2 * MS_US);
    ck_assert_int_eq(parameter(TOP_PRIORITY), INT64_MIN);
    res = lock_row(1000);
    set_bigint(res, OLDEST_LEFT, 300);
    ck_assert(take_result(0, res));
    finish(2 * MS_US);
    claim_at(900 * MS_US); /* before the slow sweep has its turn */
    ck_assert(plan.from_top);
    ordering_unordered.claim_failed(o, &plan);
    claim_at(900 * MS_US);
    ck_assert(plan.from_top);
}
END_TEST

START_TEST(looks_from_the_very_top_have_a_bounded_part_of_the_time)
{
    settle_ids(1000);
    claim_at(0);
    leave_a_backlog(0);
    claim_at(0);
    PGresult *res = lock_row(1000);
    set_bigint(res, OLDEST_LEFT, 200);
    ck_assert(take_result(0, res));
    plan.events = 1;
    ordering_unordered.claim_done(o, &plan, SECOND_US, 0);
    claim_at(9 * SECOND_US);
    ck_assert(!plan.from_top);
    ordering_unordered.claim_failed(o, &(struct claim_plan){.scan = plan.scan, .report.newest_left = {1, 0}});
    claim_at(9 * SECOND_US);
    ck_assert(plan.from_top); /* what a failed claim has covered may be anywhere */
}
END_TEST

START_TEST(without_a_backlog_nobody_looks_at_the_top)
{
    claim_at(0);
    ck_assert(!plan.from_top);
    ck_assert_int_eq(parameter(TOP_PRIORITY), INT64_MIN);
}
END_TEST

START_TEST(events_that_were_given_back_are_urgent_again)
{
    settle_ids(1000);
    claim_at(0);
    leave_a_backlog(0);
    claim_at(0);
    leave_a_backlog(0);
    ordering_unordered.released(o, 7, 9000, 5 * MS_US);
    claim_at(4 * MS_US);
    ck_assert(!plan.from_top);
    ordering_unordered.claim_failed(o, &plan);
    ordering_unordered.released(o, 7, 9, 5 * MS_US);
    claim_at(5 * MS_US);
    ck_assert(plan.from_top);
}
END_TEST

START_TEST(events_and_those_that_are_gone_arrive)
{
    claim_at(0);
    ck_assert(take_result(0, lock_row(5)));
    ck_assert(take_read(5));
    PGresult *res = row_of(READ_COLUMNS);
    set_bigint(res, 1, 8);
    ck_assert(take_result(1, res));
    ck_assert_uint_eq(taken_count, 2);
    ck_assert_int_eq(taken[0], 5);
    ck_assert_int_eq(taken[1], -8);
    ck_assert(!take_read(13));
    ck_assert_str_eq(err.text, "refused");
}
END_TEST

START_TEST(pause_is_told)
{
    claim_at(0);
    ck_assert(take_result(0, lock_row(5)));
    PGresult *res = row_of(READ_COLUMNS);
    set_int(res, 0, -1);
    ck_assert(take_result(1, res));
    ck_assert(paused);
    ck_assert_uint_eq(taken_count, 0);
}
END_TEST

START_TEST(result_of_another_shape_is_refused)
{
    claim_at(0);
    ck_assert(!take_result(0, row_of(READ_COLUMNS)));
    ck_assert_int_eq(err.kind, ERROR_INTERNAL);
    PGresult *res = lock_row(5);
    ck_assert_int_eq(PQsetvalue(res, 1, 0, NULL, -1), 1);
    ck_assert(!take_result(0, res));
}
END_TEST

START_TEST(what_was_locked_and_not_returned_is_claimed_again)
{
    settle_ids(1000);
    for (int spilled = 0; spilled <= 1; spilled++) {
        claim_at(0);
        PGresult *res = lock_row(1200);
        set_bigint(res, LEFT_PRIORITY, 5);
        set_bigint(res, LEFT_ID, 77);
        ck_assert(take_result(0, res));
        plan.rows = spilled ? 1 : plan.rows_limit;
        plan.spilled = spilled;
        finish(0);
        ck_assert(plan.truncated);
        ck_assert(ordering_unordered.pending(o, 0));
        ck_assert_int_eq(ordering_unordered.pending_at(o), 0);
    }
    claim_at(0);
    ck_assert(plan.from_top);
    ck_assert_int_le(parameter(OLDEST_LO), 1);
}
END_TEST

START_TEST(missed_ids_are_looked_at_again)
{
    settle_ids(1000);
    claim_at(0);
    PGresult *res = lock_row(1000);
    set_bigint(res, MISSED_MIN, 40);
    set_bigint(res, MISSED_MAX, 50);
    set_bigint(res, THIN, 1);
    ck_assert(take_result(0, res));
    int64_t few = parameter(ROWS);
    finish(0);
    ck_assert(!ordering_unordered.pending(o, 0));
    claim_at(SECOND_US);
    ck_assert_int_eq(parameter(OLDEST_LO), 40);
    ck_assert_int_eq(parameter(OLDEST_HI), 50);
    ck_assert_int_gt(parameter(ROWS), few);
}
END_TEST

static void sweep(instant_us now)
{
    claim_at(now);
    ck_assert(plan.scan.sweeping);
    ck_assert(!plan.from_top);
}

START_TEST(sweep_goes_over_everything_and_begins_anew_after_a_claim_that_was_cut_short)
{
    settle_ids(1000);
    claim_at(0);
    ck_assert(take_result(0, lock_row(1000)));
    finish(0);
    ck_assert(ordering_unordered.sweep_due(o, SECOND_US));
    sweep(SECOND_US);
    ck_assert(take_result(0, lock_row(1000)));
    plan.spilled = true;
    finish(SECOND_US);
    claim_at(SECOND_US);
    ck_assert(!plan.scan.sweeping);
}
END_TEST

START_TEST(claim_that_fails_while_its_rows_come_asks_for_fewer)
{
    claim_at(0);
    int64_t limit = plan.rows_limit;
    plan.rows = 1;
    ordering_unordered.claim_failed(o, &plan);
    claim_at(0);
    ck_assert_int_eq(plan.rows_limit, limit / 2);
}
END_TEST

START_TEST(floor_rises_and_falls_with_what_somebody_puts_in_by_hand)
{
    settle_ids(1000);
    ck_assert(ordering_unordered.wants_probe(o));
    ck_assert_uint_eq(ordering_unordered.probe(o, 0, arena, statements), 3);
    PGresult *res = row_of(3);
    set_bigint(res, 0, 600);
    ordering_unordered.probed(o, 2, res);
    PQclear(res);
    claim_at(0);
    ck_assert_int_eq(parameter(FLOOR), 600);
    ck_assert(take_result(0, lock_row(20)));
    finish(0);
    claim_at(0);
    ck_assert_int_eq(parameter(FLOOR), 20);
}
END_TEST

START_TEST(peek_keep_and_settle_are_those_of_every_strategy)
{
    struct statement peek;
    ordering_unordered.peek(o, false, arena, &peek);
    ck_assert_int_eq(peek.count, 3);
    ck_assert_str_eq(peek.values[2], "0");
    int64_t keyless_ids[] = {4};
    struct key_list list = {.keyless_ids = keyless_ids, .keyless_count = 1};
    struct statement keep = ordering_unordered.hold(o, &list, true, arena);
    ck_assert_ptr_nonnull(strstr(keep.sql, "pg_try_advisory_lock"));
    struct settlement s = {.done = keyless_ids, .done_count = 1};
    ck_assert_uint_eq(ordering_unordered.settle(o, &s, arena, statements), 2);
    PGresult *res = row_of(1);
    set_bigint(res, 0, 0);
    size_t missing = 0;
    ordering_unordered.settled(o, &s, 0, res, &missing);
    PQclear(res);
    ck_assert_uint_eq(missing, 1);
}
END_TEST

START_TEST(names_that_are_missing_are_an_error)
{
    for (size_t n = 0; variables[n].name; n++) {
        struct sql_variable some[sizeof variables / sizeof variables[0]];
        memcpy(some, variables, sizeof variables);
        some[n].name = "another";
        struct ordering_options options = {.queue = "tasks", .variables = some};
        struct ordering *none = ordering_unordered.open(&options, &err);
        bool other_table = strncmp(variables[n].name, "sequence", 8) == 0 || strcmp(variables[n].name, "placed") == 0;
        ck_assert_msg(!none || other_table, "%s", variables[n].name);
        if (none)
            ordering_unordered.close(none);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unordered");
    TCase *tcase = tcase_create("unordered");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, claim_locks_then_reads_row_by_row_then_lets_go_of_its_snapshot);
    tcase_add_test(tcase, without_a_priority_the_oldest_have_every_place_and_nothing_is_urgent);
    tcase_add_test(tcase, both_ends_of_a_stretch_are_looked_at_as_one);
    tcase_add_test(tcase, newer_one_of_two_stretches_stays);
    tcase_add_test(tcase, claim_goes_on_where_the_one_before_has_stopped_until_it_is_time_for_the_very_top);
    tcase_add_test(tcase, looks_from_the_very_top_have_a_bounded_part_of_the_time);
    tcase_add_test(tcase, without_a_backlog_nobody_looks_at_the_top);
    tcase_add_test(tcase, events_that_were_given_back_are_urgent_again);
    tcase_add_test(tcase, events_and_those_that_are_gone_arrive);
    tcase_add_test(tcase, pause_is_told);
    tcase_add_test(tcase, result_of_another_shape_is_refused);
    tcase_add_test(tcase, what_was_locked_and_not_returned_is_claimed_again);
    tcase_add_test(tcase, missed_ids_are_looked_at_again);
    tcase_add_test(tcase, sweep_goes_over_everything_and_begins_anew_after_a_claim_that_was_cut_short);
    tcase_add_test(tcase, claim_that_fails_while_its_rows_come_asks_for_fewer);
    tcase_add_test(tcase, floor_rises_and_falls_with_what_somebody_puts_in_by_hand);
    tcase_add_test(tcase, peek_keep_and_settle_are_those_of_every_strategy);
    tcase_add_test(tcase, names_that_are_missing_are_an_error);
    return run_suite(suite);
}
