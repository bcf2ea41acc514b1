/* What the unordered strategy asks, reads and settles. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/unordered_stage.h"

START_TEST(claim_locks_by_sections_then_reads_row_by_row_then_lets_go_of_its_snapshot)
{
    const int64_t busy[] = {3};
    struct claim_request request = {.max_keys = 10, .busy_keyless_ids = busy, .busy_keyless_count = 1, .draw = 1};
    ck_assert_uint_eq(ordering_unordered.claim(o, &request, 0, arena, statements, &plan), 4);
    ck_assert_uint_eq(plan.section_count, 2);
    ck_assert_uint_eq(section(SECTION_DUE), 0);
    ck_assert_int_eq(asked(SECTION_FRESH)->count, LEAST);
    ck_assert_int_eq(parameter(SECTION_FRESH, PLACES), 10);
    ck_assert_int_ge(parameter(SECTION_FRESH, ROWS), 10);
    ck_assert_int_eq(parameter(SECTION_FRESH, BEHIND), 1);
    ck_assert_int_eq(parameter(SECTION_FRESH, LEAST), INT64_MIN);
    ck_assert_str_eq(asked(SECTION_FRESH)->values[QUEUE - 1], "tasks");
    ck_assert_int_eq(asked(SECTION_DUE)->count, 6);
    ck_assert_int_eq(parameter(SECTION_DUE, 1), 2);
    ck_assert_int_eq(statements[2].count, 2);
    ck_assert(statements[2].by_row && !statements[0].by_row && !statements[1].by_row);
    ck_assert_ptr_nonnull(strstr(statements[3].sql, "set local"));
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
    leave_a_backlog(0);
    claim_at(0);
    ck_assert(!has(SECTION_TOP) && !has(SECTION_BELOW) && !plan.from_top);
    ck_assert_uint_eq(section(SECTION_OLDEST), 1);
    ck_assert_uint_eq(section(SECTION_FRESH), 2);
    ck_assert_int_eq(parameter(SECTION_OLDEST, SECTION_PLACES), 10);
    ck_assert_int_eq(asked(SECTION_FRESH)->count, FLOOR);
    for (size_t i = 0; i < plan.section_count; i++)
        ck_assert(!strstr(statements[i].sql, "e.p ") && !strstr(statements[i].sql, "rank"));
    ck_assert_uint_eq(ordering_unordered.probe(o, 0, arena, statements), 2); /* and nobody needs to know the first id */
}
END_TEST

START_TEST(with_a_priority_the_oldest_have_their_share_of_all_claims)
{
    settle_ids(1000);
    int64_t places = 0;
    for (uint64_t draw = 0; draw < 100; draw++) {
        struct claim_request request = {.max_keys = 4, .draw = draw * 2};
        ordering_unordered.claim(o, &request, 0, arena, statements, &plan);
        ck_assert_uint_eq(section(SECTION_OLDEST), plan.section_count - 1);
        ck_assert_int_eq(parameter(SECTION_OLDEST, PLACES), 4);
        ck_assert_int_eq(parameter(SECTION_FRESH, SECTION_PLACES), parameter(SECTION_FRESH, PLACES));
        places += 4 - parameter(SECTION_FRESH, PLACES);
        ordering_unordered.claim_failed(o, &plan);
    }
    ck_assert_int_eq(places, 40);
}
END_TEST

START_TEST(waits_are_looked_for_while_there_are_any_and_by_chance_last)
{
    claim_at(0);
    PGresult *res = lock_row(5);
    set_bigint(res, WAITS, 0);
    ck_assert(take_section(SECTION_FRESH, res));
    finish(0);
    claim_at(0);
    ck_assert(!has(SECTION_DUE));
    ck_assert(take_section(SECTION_FRESH, lock_row(5)));
    finish(0);
    struct claim_request request = {.max_keys = 1, .draw = 1};
    ordering_unordered.claim(o, &request, 0, arena, statements, &plan);
    ck_assert_uint_eq(section(SECTION_DUE), 1);
}
END_TEST

START_TEST(both_ends_of_a_stretch_are_looked_at_as_one)
{
    settle_ids(1000);
    claim_at(0);
    ck_assert_int_eq(parameter(SECTION_OLDEST, FROM), INT64_MIN);
    ck_assert_int_eq(parameter(SECTION_OLDEST, TO), 1000);
    ck_assert_int_eq(parameter(SECTION_FRESH, FROM), 1001);
    ck_assert(take_section(SECTION_OLDEST, lock_row(900)));
    finish(0);
    claim_at(0);
    ck_assert(plan.scan.sweeping);
}
END_TEST

START_TEST(newer_one_of_two_stretches_stays)
{
    settle_ids(1000);
    claim_at(0);
    ck_assert(take_section(SECTION_OLDEST, lock_row(1000)));
    finish(0);
    ordering_unordered.released(o, 10, 20, 0);
    claim_at(0); /* takes over what was released */
    ck_assert(leave_oldest(15));
    taken_count = 1;
    finish(0);
    settle_ids(2000);
    claim_at(0);
    ck_assert_int_eq(parameter(SECTION_OLDEST, FROM), 15);
    ck_assert_int_eq(parameter(SECTION_OLDEST, TO), 20);
    ordering_unordered.claim_failed(o, &plan);
    claim_at(0);
    ck_assert_int_eq(parameter(SECTION_OLDEST, TO), 20);
    ck_assert(take_section(SECTION_OLDEST, lock_row(1000)));
    finish(0);
    claim_at(0);
    ck_assert_int_eq(parameter(SECTION_OLDEST, FROM), 1001);
    ck_assert_int_eq(parameter(SECTION_OLDEST, TO), 2000);
}
END_TEST

/* A result of the look at priorities: how far it has seen, and what had no place; 0: nothing. */
static bool take_top(enum claim_section_kind kind, int64_t seen, int64_t cut, bool full)
{
    PGresult *res = row_of(LOCK_COLUMNS);
    if (seen) {
        set_bigint(res, SEEN_MIN, seen);
        set_bigint(res, SEEN_MAX, seen);
    }
    if (cut) {
        set_bigint(res, CUT_MIN, cut);
        set_bigint(res, CUT_MAX, cut);
    }
    set_bigint(res, FULL, full);
    return take_section(kind, res);
}

static void expect_top(int64_t priority, int64_t id)
{
    ck_assert_int_eq(parameter(SECTION_TOP, FROM), priority);
    ck_assert_int_eq(parameter(SECTION_TOP, TO), id);
    ck_assert_int_eq(parameter(SECTION_BELOW, FROM), priority);
    ck_assert_int_eq(parameter(SECTION_BELOW, TO), INT64_MIN);
    ck_assert_int_eq(parameter(SECTION_FRESH, LEAST), priority == INT64_MAX ? priority : priority + 1);
}

START_TEST(claim_goes_on_where_the_one_before_has_stopped)
{
    static const struct {
        int64_t top_seen, top_cut, below_seen, below_cut;
        bool top_full, below_full;
        int64_t priority, id;
    } cases[] = {{0, 0, 5, 5, false, false, 5, INT64_MIN}, /* of the first priority nothing, below it no place left */
                 {70, 77, 0, 0, false, true, 5, 77},       /* nothing is looked at for want of places */
                 {90, 0, 3, 3, true, false, 5, 91},        /* there may be more of this one */
                 {0, 0, 0, 0, true, true, 5, 91},          /* others had all the places */
                 {99, 0, 0, 0, false, true, 5, INT64_MAX}, /* this one is done, and there was no place for the others */
                 {0, 0, 4, 0, false, true, 4, INT64_MIN}}; /* there may be more of the next one */
    settle_ids(1000);
    claim_at(0);
    ck_assert(!has(SECTION_TOP));
    leave_a_backlog(0);
    claim_at(0);
    ck_assert(plan.from_top);
    expect_top(INT64_MAX, INT64_MIN);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert(take_top(SECTION_TOP, cases[i].top_seen, cases[i].top_cut, cases[i].top_full));
        ck_assert(take_top(SECTION_BELOW, cases[i].below_seen, cases[i].below_cut, cases[i].below_full));
        ck_assert(plan.left);
        leave_a_backlog((instant_us)i * MS_US);
        claim_at((instant_us)i * MS_US);
        ck_assert(!plan.from_top);
        expect_top(cases[i].priority, cases[i].id);
    }
}
END_TEST

START_TEST(claim_that_did_not_look_at_the_top_leaves_the_place_of_the_one_beside_it)
{
    settle_ids(1000);
    claim_at(0);
    struct claim_plan beside = plan;
    leave_a_backlog(0);
    claim_at(0);
    ck_assert(take_top(SECTION_TOP, 0, 0, false) && take_top(SECTION_BELOW, 5, 5, false));
    leave_a_backlog(0);
    plan = beside;
    leave_a_backlog(0);
    claim_at(MS_US);
    expect_top(5, INT64_MIN);
}
END_TEST

START_TEST(when_nothing_less_urgent_is_left_it_is_looked_from_the_very_top_after_a_while)
{
    settle_ids(1000);
    claim_at(0);
    leave_a_backlog(0);
    claim_at(0);
    ck_assert(take_top(SECTION_TOP, 0, 0, false) && take_top(SECTION_BELOW, 7, 0, false));
    leave_a_backlog(0);
    claim_at(MS_US);
    ck_assert(!has(SECTION_TOP));
    ck_assert_int_eq(parameter(SECTION_FRESH, LEAST), INT64_MIN);
    leave_a_backlog(MS_US);
    claim_at(900 * MS_US); /* before the slow sweep has its turn */
    ck_assert(plan.from_top && has(SECTION_TOP));
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
    ck_assert(leave_oldest(200));
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
    ck_assert(!plan.from_top && !plan.top && !has(SECTION_TOP));
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
    ck_assert(take_section(SECTION_FRESH, lock_row(5)));
    ck_assert(take_read(5));
    PGresult *res = row_of(READ_COLUMNS);
    set_bigint(res, 1, 8);
    ck_assert(take_result(plan.section_count, res));
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
    ck_assert(take_section(SECTION_FRESH, lock_row(5)));
    PGresult *res = row_of(READ_COLUMNS);
    set_int(res, 0, -1);
    ck_assert(take_result(plan.section_count, res));
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
        ck_assert(take_section(SECTION_OLDEST, lock_row(1)));
        ck_assert(take_section(SECTION_FRESH, lock_row(1200)));
        plan.rows = spilled ? 1 : plan.rows_limit;
        plan.spilled = spilled;
        finish(0);
        ck_assert(plan.truncated);
        ck_assert(ordering_unordered.pending(o, 0));
        ck_assert_int_eq(ordering_unordered.pending_at(o), 0);
    }
    claim_at(0);
    ck_assert(plan.from_top);
    ck_assert_int_eq(parameter(SECTION_OLDEST, FROM), 1);
}
END_TEST

START_TEST(missed_ids_are_looked_at_again)
{
    settle_ids(1000);
    claim_at(0);
    PGresult *res = lock_row(1000);
    set_bigint(res, MISSED_MIN, 40);
    set_bigint(res, MISSED_MAX, 50);
    set_bigint(res, FULL, 1);
    ck_assert(take_section(SECTION_OLDEST, res));
    int64_t few = parameter(SECTION_OLDEST, ROWS);
    finish(0);
    ck_assert(!ordering_unordered.pending(o, 0));
    claim_at(SECOND_US);
    ck_assert_int_eq(parameter(SECTION_OLDEST, FROM), 40);
    ck_assert_int_eq(parameter(SECTION_OLDEST, TO), 50);
    ck_assert_int_gt(parameter(SECTION_OLDEST, ROWS), few);
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
    ck_assert(take_section(SECTION_OLDEST, lock_row(1000)));
    finish(0);
    ck_assert(ordering_unordered.sweep_due(o, SECOND_US));
    sweep(SECOND_US);
    ck_assert(take_section(SECTION_OLDEST, lock_row(1000)));
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
    ck_assert_int_eq(parameter(SECTION_OLDEST, FLOOR), 600);
    res = lock_row(20);
    static char low[] = "{{\"\",30,30},{\"\",20,20}}";
    ck_assert_int_eq(PQsetvalue(res, 0, LOW, low, (int)strlen(low)), 1);
    ck_assert(take_section(SECTION_OLDEST, res));
    finish(0);
    claim_at(0);
    ck_assert_int_eq(parameter(SECTION_OLDEST, FLOOR), 20);
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
        struct ordering_options options = {.queue = "tasks", .variables = some, .priority = true};
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
    tcase_add_test(tcase, claim_locks_by_sections_then_reads_row_by_row_then_lets_go_of_its_snapshot);
    tcase_add_test(tcase, without_a_priority_the_oldest_have_every_place_and_nothing_is_urgent);
    tcase_add_test(tcase, with_a_priority_the_oldest_have_their_share_of_all_claims);
    tcase_add_test(tcase, waits_are_looked_for_while_there_are_any_and_by_chance_last);
    tcase_add_test(tcase, both_ends_of_a_stretch_are_looked_at_as_one);
    tcase_add_test(tcase, newer_one_of_two_stretches_stays);
    tcase_add_test(tcase, claim_goes_on_where_the_one_before_has_stopped);
    tcase_add_test(tcase, claim_that_did_not_look_at_the_top_leaves_the_place_of_the_one_beside_it);
    tcase_add_test(tcase, when_nothing_less_urgent_is_left_it_is_looked_from_the_very_top_after_a_while);
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
