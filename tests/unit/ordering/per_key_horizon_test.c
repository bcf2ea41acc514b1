/* What per_key knows of ids: what to look at again, and how far they are settled. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/per_key_stage.h"

/* ---- claims that were cut short ---- */

START_TEST(full_answer_is_truncated_and_its_ids_asked_for_again)
{
    probe(100000, 0, false, 0);
    claim();
    int64_t limit = read_parameter(4);
    take_seen(1, 90000);
    plan.rows = limit;
    finish_claim();
    ck_assert(plan.truncated);
    claim();
    ck_assert_int_eq(ids_of(SECTION_OLDEST).lo, 1);
    ck_assert_int_eq(read_parameter(4), 2 * limit);
    take_seen(1, 90000);
    plan.spilled = true; /* rows are large: ask for fewer */
    finish_claim();
    ck_assert(plan.truncated);
    claim();
    ck_assert_int_eq(read_parameter(4), limit);
}
END_TEST

/* What lies beside it may be millions of dead rows. */
START_TEST(of_a_truncated_answer_what_was_seen_is_asked_for_again)
{
    probe(100000, 0, false, 0);
    claim();
    take_seen(30000, 60000);
    plan.rows = plan.rows_limit;
    finish_claim();
    claim();
    ck_assert_int_eq(ids_of(SECTION_OLDEST).lo, 30000);
    ck_assert_int_eq(ids_of(SECTION_NEWEST).hi, 60000);
}
END_TEST

/* Each claim that asks for too many reads them all, and leaves most of them out. */
START_TEST(rows_that_are_much_larger_than_the_last_are_asked_for_few_at_once)
{
    probe(100000, 0, false, 0);
    claim();
    int64_t limit = read_parameter(4);
    take_seen(1, 90000);
    plan.spilled = true;
    plan.room = 8;
    finish_claim();
    claim();
    ck_assert_int_eq(read_parameter(4), 16);
    ck_assert_int_lt(16, limit);
    take_seen(1, 90000);
    plan.spilled = true;
    plan.room = 1;
    finish_claim();
    claim();
    ck_assert_int_eq(read_parameter(4), 2);
}
END_TEST

START_TEST(claim_that_fails_while_its_rows_come_asks_for_fewer)
{
    probe(100000, 0, false, 0);
    claim();
    int64_t limit = read_parameter(4);
    ordering_per_key.claim_failed(o, &plan); /* before the first */
    claim();
    ck_assert_int_eq(read_parameter(4), limit);
    for (int i = 0; i < 20; i++) {
        plan.rows = 1;
        struct claim_plan together = plan;
        ordering_per_key.claim_failed(o, &plan);
        ordering_per_key.claim_failed(o, &together);
        claim();
        ck_assert_int_eq(read_parameter(4), limit > 1 ? limit / 2 : 1);
        limit = read_parameter(4);
    }
    plan.rows = limit;
    finish_claim();
    claim();
    ck_assert_int_eq(read_parameter(4), 2 * limit);
}
END_TEST

START_TEST(idle_relay_asks_for_what_is_new)
{
    struct statement peek;
    probe(1000, 0, false, 0);
    ordering_per_key.peek(o, false, arena, &peek);
    ck_assert_int_eq(peek.count, 3);
    ck_assert_str_eq(peek.values[0], "1000");
    ck_assert_str_eq(peek.values[1], "orders");
    ck_assert_str_eq(peek.values[2], "1");
}
END_TEST

START_TEST(truncated_sweep_is_asked_for_again)
{
    probe(1000, 0, false, 0);
    do {
        claim();
        take_nothing();
        if (!plan.scan.sweeping)
            finish_claim();
    } while (!plan.scan.sweeping);
    struct id_range swept = plan.scan.oldest;
    plan.spilled = true;
    finish_claim();
    claim();
    ck_assert(!plan.scan.sweeping);
    ck_assert_int_eq(ids_of(SECTION_OLDEST).lo, swept.lo);
}
END_TEST

START_TEST(ids_seen_by_a_truncated_claim_are_asked_for_again)
{
    probe(1000, 0, false, 0);
    look_at_all(1000);
    claim();
    take_seen(1100, 1500); /* inserted since the probe */
    plan.spilled = true;
    finish_claim();
    ck_assert(ordering_per_key.pending(o, 0));
    claim();
    ck_assert_int_eq(ids_of(SECTION_OLDEST).lo, 1100);
    ck_assert_int_eq(ids_of(SECTION_NEWEST).lo, ids_of(SECTION_OLDEST).hi + 1);
    ck_assert_int_eq(ids_of(SECTION_NEWEST).hi, 1500);
}
END_TEST

START_TEST(rows_of_a_claim_have_bounds)
{
    for (int i = 0; i < 20; i++) {
        claim();
        take_seen(1, 1);
        plan.rows = plan.rows_limit;
        finish_claim();
    }
    claim();
    ck_assert_int_eq(read_parameter(4), 16384);
    for (int i = 0; i < 20; i++) {
        claim();
        take_seen(1, 1);
        plan.spilled = true;
        finish_claim();
    }
    claim();
    ck_assert_int_eq(read_parameter(4), 1);
}
END_TEST

/* Before one is cut short: its keys would have been locked in vain. */
START_TEST(claim_may_return_more_once_half_of_that_was_returned)
{
    static const struct {
        int64_t rows, next;
    } returned[] = {{511, 1024}, {512, 2048}, {1023, 2048}, {1024, 4096}};
    for (size_t i = 0; i < sizeof returned / sizeof returned[0]; i++) {
        claim();
        take_seen(1, 1);
        plan.rows = returned[i].rows;
        finish_claim();
        ck_assert(!plan.truncated);
        claim();
        ck_assert_int_eq(plan.rows_limit, returned[i].next);
    }
}
END_TEST

/* ---- how far ids are settled ---- */

static void answer_probe(size_t index, int64_t first, int64_t second)
{
    PGresult *res = result_of(2);
    set_bigint(res, 0, 0, first);
    set_bigint(res, 0, 1, second);
    ordering_per_key.probed(o, index, res);
    PQclear(res);
}

START_TEST(floor_rises_over_settled_ids_that_are_gone)
{
    claim();
    ck_assert_int_eq(read_parameter(2), SCAN_ID_MIN);
    probe(1000, 0, false, 0);
    probe(1000, 0, true, 0); /* nothing up to 1000 */
    claim();
    ck_assert_int_eq(read_parameter(2), 1001);
    ck_assert(!ordering_per_key.wants_probe(o));
}
END_TEST

START_TEST(floor_stops_at_the_first_id_that_is_there)
{
    probe(1000, 0, false, 0);
    probe(1000, 0, true, 400);
    claim();
    ck_assert_int_eq(read_parameter(2), 400);
    probe(1000, 0, true, 400);
    claim();
    ck_assert_int_eq(read_parameter(2), 400);
}
END_TEST

START_TEST(floor_never_passes_an_id_that_may_still_appear)
{
    probe(1000, 1, false, 0); /* somebody who drew ids is still there */
    probe(2000, 1, false, 0);
    claim();
    ck_assert_int_eq(read_parameter(2), SCAN_ID_MIN);
    probe(3000, 0, false, 0);
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 3);
    ck_assert_int_le(parameter(2, 2), 3000);
    probe(1000000, 2, true, 0);
    claim();
    ck_assert_int_le(read_parameter(2), 3001);
}
END_TEST

START_TEST(floor_falls_when_the_sequence_is_set_back)
{
    probe(1000, 0, false, 0);
    probe(1000, 0, true, 0);
    size_t n = ordering_per_key.probe(o, 0, arena, statements);
    probe(5, 0, n == 3, 0);
    claim();
    ck_assert_int_le(read_parameter(2), 6);
    ck_assert_int_le(fresh_above(), 5);
}
END_TEST

/* One that finds nothing up to the end of its stretch, by this server and this file of the sequence. */
static void probe_of(const char *source, int64_t drawn)
{
    size_t n = ordering_per_key.probe(o, 0, arena, statements);
    PGresult *res = result_of(3);
    set_bigint(res, 0, 0, 1);
    set_bigint(res, 0, 1, drawn);
    set_text(res, 0, 2, source);
    ordering_per_key.probed(o, 0, res);
    PQclear(res);
    res = result_of(1);
    ordering_per_key.probed(o, 1, res);
    set_text(res, 0, 0, NULL);
    if (n == 3)
        ordering_per_key.probed(o, 2, res);
    PQclear(res);
}

static void assert_nothing_is_passed_over(void)
{
    claim();
    ck_assert_int_eq(read_parameter(2), SCAN_ID_MIN);
}

START_TEST(sequence_that_was_set_back_and_has_caught_up_starts_anew)
{
    probe_of("16384 1.5", 1000);
    probe_of("16384 1.5", 1000);
    claim();
    ck_assert_int_eq(read_parameter(2), 1001);
    probe_of("16390 1.5", 1100);
    assert_nothing_is_passed_over();
    probe_of("16390 1.5", 1100);
    ck_assert(ordering_per_key.pending(o, 0)); /* all of them are looked at again */
    assert_nothing_is_passed_over();
    ck_assert_int_eq(fresh_above(), 1100);
    probe_of("16390 1.5", 1100);
    claim();
    ck_assert_int_eq(read_parameter(2), 1101);
}
END_TEST

/* Then the server names no holders: it was asked for those beyond the same number. */
START_TEST(sequence_that_has_caught_up_to_the_same_id_settles_nothing_at_once)
{
    probe_of("16384 1.5", 1000);
    probe_of("16384 1.5", 1000);
    probe_of("16390 1.5", 1000);
    assert_nothing_is_passed_over();
    ck_assert_int_eq(fresh_above(), SCAN_ID_MIN);
    ck_assert(ordering_per_key.wants_probe(o));
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 2);
    ck_assert_int_eq(parameter(1, 1), SCAN_ID_MIN);
}
END_TEST

START_TEST(who_holds_ids_is_asked_from_what_has_settled_on)
{
    probe(1000, 0, false, 0);
    ordering_per_key.probe(o, 0, arena, statements);
    ck_assert_int_eq(parameter(1, 1), 1000);
    answer_probe(0, 1, 1001);
    PGresult *holder = result_of(1);
    set_text(holder, 0, 0, "3/7");
    ordering_per_key.probed(o, 1, holder);
    PQclear(holder);
    ordering_per_key.probe(o, 0, arena, statements);
    ck_assert_int_eq(parameter(1, 1), SCAN_ID_MIN); /* that holder is to be heard of, whatever is drawn */
}
END_TEST

START_TEST(stretch_that_was_asked_about_before_the_sequence_was_set_back_says_nothing)
{
    probe(1000, 0, false, 0);
    probe(1000, 0, true, 400);
    probe(5, 0, true, 0); /* nothing is left from 400 to 1000 */
    assert_nothing_is_passed_over();
}
END_TEST

START_TEST(what_may_be_another_server_is_asked_about_everything_again)
{
    probe(1000, 0, false, 0);
    probe(1000, 0, true, 0);
    ordering_per_key.forget(o);
    assert_nothing_is_passed_over();
    ck_assert_int_eq(fresh_above(), SCAN_ID_MIN);
    ck_assert(ordering_per_key.wants_probe(o));
    probe(1100, 0, false, 0);
    claim();
    ck_assert_int_le(ids_of(SECTION_OLDEST).lo, 1);
    ck_assert(ordering_per_key.wants_probe(o)); /* for the floor */
}
END_TEST

START_TEST(floor_falls_to_an_id_that_was_inserted_below_it)
{
    probe(1000, 0, false, 0);
    probe(1000, 0, true, 0);
    claim();
    PGresult *res = lock_row_of(100, 1000);   /* an entry covers the first of them */
    set_text(res, 0, LOW, "{{k,1001,1001}}"); /* nothing wrong with this one */
    answer(SECTION_FRESH, res);
    ck_assert(take_locks());
    ck_assert(id_range_is_empty(plan.report.missed));
    finish_claim();
    claim();
    ck_assert_int_eq(read_parameter(2), 1001);
    res = lock_row_of(500, 1000);
    set_text(res, 0, LOW, "{{k,700,700},{l,500,500},{\"\",600,600}}");
    answer(SECTION_FRESH, res);
    ck_assert(take_locks());
    ck_assert_int_eq(plan.report.missed.lo, 500);
    ck_assert_int_eq(plan.report.missed.hi, 700);
    finish_claim();
    claim();
    ck_assert_int_eq(read_parameter(2), 500);
    res = lock_row_of(400, 1000);
    set_text(res, 0, LOW, "{{k,400,400}}");
    set_bigint(res, 0, MISSED_MIN, 450);
    set_bigint(res, 0, MISSED_MAX, 600);
    answer(SECTION_FRESH, res);
    ck_assert(take_locks());
    ck_assert_int_eq(plan.report.missed.lo, 400);
    ck_assert_int_eq(plan.report.missed.hi, 600);
    finish_claim();
    ck_assert_int_ne(ordering_per_key.pending_at(o), INSTANT_NEVER);
}
END_TEST

START_TEST(floor_is_looked_for_a_stretch_at_a_time)
{
    probe(INT64_C(1000000), 0, false, 0);
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 3);
    ck_assert_int_eq(parameter(2, 1), SCAN_ID_MIN);
    ck_assert_int_lt(parameter(2, 2), 1000000);
    /* Ids that begin near the greatest there is: a stretch ends there. */
    answer_probe(0, SCAN_ID_MAX - 5, SCAN_ID_MAX);
    PGresult *res = result_of(1);
    ordering_per_key.probed(o, 1, res);
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 3);
    ck_assert_int_eq(parameter(2, 2), SCAN_ID_MAX);
    PQclear(res);
}
END_TEST

START_TEST(smallest_id_of_all_is_an_id)
{
    ordering_per_key.probe(o, 0, arena, statements);
    answer_probe(0, SCAN_ID_MIN, SCAN_ID_MIN);
    PGresult *res = result_of(1);
    ordering_per_key.probed(o, 1, res);
    PQclear(res);
    ck_assert(ordering_per_key.pending(o, 0));
    claim();
    ck_assert_int_eq(ids_of(SECTION_OLDEST).lo, SCAN_ID_MIN);
}
END_TEST

START_TEST(empty_answer_to_a_probe_settles_nothing)
{
    ordering_per_key.probe(o, 0, arena, statements);
    PGresult *res = result_of(2);
    ordering_per_key.probed(o, 0, res);
    ordering_per_key.probed(o, 1, res);
    claim();
    ck_assert_int_eq(fresh_above(), SCAN_ID_MIN);
    probe(1000, 0, false, 0);
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 3);
    ordering_per_key.probed(o, 2, res);
    PQclear(res);
    claim();
    ck_assert_int_eq(read_parameter(2), SCAN_ID_MIN);
}
END_TEST

START_TEST(too_many_holders_to_remember_settle_nothing)
{
    PGresult *many = result_of(1);
    for (int i = 0; i < SCAN_HOLDERS_MAX + 10; i++) {
        char name[24];
        snprintf(name, sizeof name, "3/%d", i);
        set_text(many, i, 0, name);
    }
    for (int i = 0; i < 2; i++) {
        ordering_per_key.probe(o, 0, arena, statements);
        answer_probe(0, 1, 1000);
        ordering_per_key.probed(o, 1, many);
    }
    PQclear(many);
    ck_assert(ordering_per_key.wants_probe(o));
    /* No floor is looked for either: nothing lies below it. */
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 2);
}
END_TEST

START_TEST(table_without_a_readable_sequence_has_no_floor)
{
    ordering_per_key.close(o);
    open_with(false, false);
    probe(1000, 0, false, 0);
    probe(1000, 0, false, 0);
    claim();
    ck_assert_int_eq(read_parameter(2), SCAN_ID_MIN);
    /* The greatest visible id falls as events are delivered; that is no sequence set back. */
    probe(10, 0, false, 0);
    claim();
    ck_assert_int_eq(fresh_above(), 1000);
    ck_assert(!ordering_per_key.wants_probe(o));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("per_key_horizon");
    TCase *tcase = tcase_create("per_key_horizon");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, full_answer_is_truncated_and_its_ids_asked_for_again);
    tcase_add_test(tcase, of_a_truncated_answer_what_was_seen_is_asked_for_again);
    tcase_add_test(tcase, rows_that_are_much_larger_than_the_last_are_asked_for_few_at_once);
    tcase_add_test(tcase, claim_that_fails_while_its_rows_come_asks_for_fewer);
    tcase_add_test(tcase, idle_relay_asks_for_what_is_new);
    tcase_add_test(tcase, truncated_sweep_is_asked_for_again);
    tcase_add_test(tcase, ids_seen_by_a_truncated_claim_are_asked_for_again);
    tcase_add_test(tcase, rows_of_a_claim_have_bounds);
    tcase_add_test(tcase, claim_may_return_more_once_half_of_that_was_returned);
    tcase_add_test(tcase, floor_rises_over_settled_ids_that_are_gone);
    tcase_add_test(tcase, floor_stops_at_the_first_id_that_is_there);
    tcase_add_test(tcase, floor_never_passes_an_id_that_may_still_appear);
    tcase_add_test(tcase, floor_falls_when_the_sequence_is_set_back);
    tcase_add_test(tcase, sequence_that_was_set_back_and_has_caught_up_starts_anew);
    tcase_add_test(tcase, sequence_that_has_caught_up_to_the_same_id_settles_nothing_at_once);
    tcase_add_test(tcase, who_holds_ids_is_asked_from_what_has_settled_on);
    tcase_add_test(tcase, stretch_that_was_asked_about_before_the_sequence_was_set_back_says_nothing);
    tcase_add_test(tcase, what_may_be_another_server_is_asked_about_everything_again);
    tcase_add_test(tcase, floor_falls_to_an_id_that_was_inserted_below_it);
    tcase_add_test(tcase, floor_is_looked_for_a_stretch_at_a_time);
    tcase_add_test(tcase, smallest_id_of_all_is_an_id);
    tcase_add_test(tcase, empty_answer_to_a_probe_settles_nothing);
    tcase_add_test(tcase, too_many_holders_to_remember_settle_nothing);
    tcase_add_test(tcase, table_without_a_readable_sequence_has_no_floor);
    return run_suite(suite);
}
