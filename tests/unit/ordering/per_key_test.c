/* What per_key asks, reads and settles. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/per_key_stage.h"

START_TEST(claim_locks_then_reads_row_by_row_then_lets_go_of_its_snapshot)
{
    const struct span busy[] = {SPAN_LITERAL("b")}, follow[] = {SPAN_LITERAL("f")};
    const int64_t keyless_ids[] = {3};
    struct claim_request request = {.max_keys = 10,
                                    .events_per_key = 4,
                                    .busy_keys = busy,
                                    .busy_key_count = 1,
                                    .busy_keyless_ids = keyless_ids,
                                    .busy_keyless_count = 1,
                                    .follow_keys = follow,
                                    .follow_key_count = 1};
    ck_assert_uint_eq(ordering_per_key.claim(o, &request, 0, arena, statements, &plan), 3);
    ck_assert_int_eq(statements[0].count, 19);
    ck_assert(!statements[0].by_row);
    ck_assert_int_ge(parameter(0, 6), 10);
    ck_assert_int_ge(parameter(0, 15), 10);
    ck_assert_int_eq(parameter(0, 7), 10);
    ck_assert_int_eq(parameter(0, 8), 20);
    ck_assert_str_eq(statements[0].values[11], "orders");
    ck_assert_int_eq(parameter(0, 13), 7);
    ck_assert_int_eq(parameter(0, 14), 0);
    ck_assert_ptr_null(statements[0].values[15]);
    ck_assert_int_eq(statements[1].count, 6);
    ck_assert(statements[1].by_row);
    ck_assert_int_eq(parameter(1, 3), 4);
    ck_assert_ptr_nonnull(strstr(statements[2].sql, "set local"));
    const char *sql = statements[0].sql; /* prepared by its address */
    ordering_per_key.claim(o, &request, 0, arena, statements, &plan);
    ck_assert_ptr_eq(statements[0].sql, sql);
}
END_TEST

START_TEST(chance_decides_what_takes_the_one_place_of_a_claim)
{
    int oldest = 0, last = 0;
    for (uint64_t draw = 0; draw < 200; draw++) {
        struct claim_request request = {.max_keys = 1, .events_per_key = 4, .draw = draw};
        ordering_per_key.claim(o, &request, 0, arena, statements, &plan);
        ck_assert(parameter(0, 8) == 0 || parameter(0, 8) == 100);
        oldest += parameter(0, 8) == 100;
        last += parameter(0, 14) == 1;
    }
    ck_assert_int_eq(oldest, 40);
    ck_assert_int_eq(last, 100);
    struct claim_request request = {.max_keys = 2, .events_per_key = 4, .draw = 1, .behind = true};
    ordering_per_key.claim(o, &request, 0, arena, statements, &plan);
    ck_assert_int_eq(parameter(0, 8), 20);
    ck_assert_int_eq(parameter(0, 14), 0);
}
END_TEST

static void claim_is_done(bool thin)
{
    PGresult *res = lock_row(900);
    set_bigint(res, 0, THIN, thin);
    ck_assert(take_result(0, res));
    ordering_per_key.claim_done(o, &plan, MS_US, SECOND_US);
}

START_TEST(rows_are_looked_at_as_keys_repeat)
{
    probe(1000, 0, false, 0);
    claim(); /* both ends, with a share of 20 for the oldest */
    int64_t few = parameter(0, 6) + oldest_rows();
    ck_assert_int_ge(few, 10);
    ck_assert_int_le(few, 20);
    ck_assert_int_gt(parameter(0, 6), 2 * oldest_rows());
    claim_is_done(true);
    claim();
    int64_t more = parameter(0, 6);
    ck_assert_int_ge(more, few); /* one end: all that is left */
    for (int i = 0; i < 10; i++) {
        claim_is_done(true);
        claim();
    }
    int64_t most = parameter(0, 6);
    ck_assert_int_gt(most, more);
    ck_assert_int_le(most, 50);
    for (int i = 0; i < 40 && !plan.fresh; i++) {
        claim_is_done(false);
        claim();
    }
    ck_assert_int_le(parameter(0, plan.fresh ? 2 : 6), 20);
}
END_TEST

START_TEST(what_was_not_looked_at_is_asked_for_again)
{
    probe(1000, 0, false, 0);
    claim();
    ck_assert_int_eq(parameter(0, 1), 1000);
    int64_t newest_lo = parameter(0, 2), oldest_hi = parameter(0, 5);
    PGresult *res = lock_row(900);
    set_bigint(res, 0, NEWEST_LEFT, 800);
    set_bigint(res, 0, OLDEST_LEFT, 20);
    ck_assert(take_result(0, res));
    finish_claim();
    ck_assert(ordering_per_key.pending(o, 0));
    claim();
    ck_assert_int_eq(parameter(0, 3), 800);
    ck_assert_int_le(parameter(0, 2), 800);
    ck_assert_int_ge(newest_lo, oldest_hi);
    ck_assert_int_eq(parameter(0, 4), 20);
}
END_TEST

START_TEST(claim_of_followed_keys_looks_for_no_others)
{
    const struct span follow[] = {SPAN_LITERAL("f")};
    probe(1000, 0, false, 0);
    struct claim_request request = {.max_keys = 1, .follow_keys = follow, .follow_key_count = 1, .followed_only = true};
    ordering_per_key.claim(o, &request, 0, arena, statements, &plan);
    ck_assert_int_eq(parameter(0, 1), INT64_MAX);
    ck_assert_int_gt(parameter(0, 2), parameter(0, 3));
    ck_assert_int_gt(parameter(0, 4), parameter(0, 5));
    ck_assert(take_result(0, lock_row(0)));
    finish_claim();
    claim();
    ck_assert_int_eq(parameter(0, 3), 1000); /* what there was to look at still is */
}
END_TEST

START_TEST(failed_claim_is_asked_for_again)
{
    probe(1000, 0, false, 0);
    claim();
    int64_t lo = parameter(0, 4), hi = parameter(0, 3);
    ck_assert(ordering_per_key.claim_failed != NULL);
    ordering_per_key.claim_failed(o, &plan);
    claim();
    ck_assert_int_eq(parameter(0, 4), lo);
    ck_assert_int_eq(parameter(0, 3), hi);
}
END_TEST

START_TEST(missed_keys_and_ids_are_reported)
{
    probe(1000, 0, false, 0);
    claim();
    PGresult *res = lock_row(900);
    set_bigint(res, 0, MISSED_MIN, 300);
    set_bigint(res, 0, MISSED_MAX, 400);
    set_text(res, 0, MISSED_KEY, "k1");
    set_bigint(res, 1, SEEN_MAX, 900); /* an event without a key has none to name */
    set_text(res, 1, MISSED_KEY, NULL);
    set_bigint(res, 2, SEEN_MAX, 900);
    set_text(res, 2, MISSED_KEY, "k2");
    set_bigint(res, 2, MISSED_LOW, 350);
    set_bigint(res, 2, MISSED_HIGH, 360);
    ck_assert(take_result(0, res));
    ck_assert_uint_eq(plan.missed_key_count, 2);
    ck_assert(id_range_is_empty(plan.missed_keys[0].ids));
    ck_assert(span_equal(plan.missed_keys[1].key, span_of("k2")));
    ck_assert_int_eq(plan.missed_keys[1].ids.lo, 350);
    ck_assert_int_eq(plan.missed_keys[1].ids.hi, 360);
    ck_assert_int_eq(plan.locked, 1);
    finish_claim();
    ck_assert_int_ne(ordering_per_key.pending_at(o), INSTANT_NEVER);
}
END_TEST

START_TEST(answer_of_another_shape_is_refused)
{
    claim();
    ck_assert(!take_result(0, result_of(LOCK_ALL)));
    ck_assert(!take_result(0, event_row(1, "k")));
    ck_assert_int_eq(err.kind, ERROR_INTERNAL);
}
END_TEST

START_TEST(answer_that_saw_nothing_is_taken)
{
    claim();
    PGresult *res = lock_row(0);
    set_text(res, 0, SEEN_MAX, NULL);
    set_bigint(res, 0, MISSED_MIN, 300); /* half of a range is none */
    ck_assert(take_result(0, res));
    ck_assert_int_eq(plan.report.seen_max, SCAN_ID_MIN);
    ck_assert_int_gt(plan.report.missed.lo, plan.report.missed.hi);
}
END_TEST

START_TEST(strategy_does_not_open_without_a_word_of_its_statements)
{
    struct sql_variable some[sizeof variables / sizeof variables[0]];
    size_t refused = 0;
    for (size_t left_out = 0; variables[left_out].name; left_out++) {
        memcpy(some, variables, sizeof some);
        memmove(&some[left_out], &some[left_out + 1], sizeof some - (left_out + 1) * sizeof some[0]);
        struct ordering_options options = {.queue = "orders", .variables = some, .sequence = true};
        struct ordering *other = ordering_per_key.open(&options, &err);
        if (other) {
            ordering_per_key.close(other);
            continue;
        }
        refused++;
        ck_assert_msg(strstr(err.text, variables[left_out].name) != NULL, "%s", err.text);
    }
    ck_assert_uint_gt(refused, 4);
}
END_TEST

/* ---- events ---- */

START_TEST(event_is_decoded_with_its_nulls)
{
    claim();
    PGresult *res = event_row(-5, "k");
    set_bigint(res, 0, CREATED, -1);
    set_text(res, 0, TYPE, "paid");
    set_text(res, 0, PAYLOAD, "");
    set_text(res, 0, TID, "\1\2\3\4\5\6");
    set_text(res, 0, EXTRA_1, "eu");
    ck_assert(take_result(1, res));
    ck_assert_uint_eq(event_count, 1);
    const struct event *event = &events[0];
    ck_assert_int_eq(event->id, -5);
    ck_assert_int_eq(event->created_at_us, EPOCH_2000_S * SECOND_US - 1);
    ck_assert_uint_eq(event->tid, UINT64_C(0x010203040506));
    ck_assert_int_eq(event->oversize_bytes, 0);
    ck_assert_uint_eq(event->attempt, 1);
    ck_assert_ptr_nonnull(event->payload.data); /* empty is not absent */
    ck_assert_uint_eq(event->payload.size, 0);
    ck_assert_ptr_null(event->headers.data);
    ck_assert_ptr_null(event->event_id.data);
    ck_assert_ptr_null(event->traceparent.data);
    ck_assert_ptr_null(event->columns[0].data);
    ck_assert_uint_eq(event->columns[1].size, 2);
    ck_assert(!waited[0]);
}
END_TEST

START_TEST(instants_at_infinity_or_too_far_away_are_no_instants)
{
    claim();
    PGresult *res = event_row(1, "k");
    set_bigint(res, 0, CREATED, INT64_MAX);
    ck_assert(take_result(1, res));
    res = event_row(2, "k");
    set_bigint(res, 0, CREATED, INT64_MIN);
    ck_assert(take_result(1, res));
    res = event_row(3, "k");
    set_bigint(res, 0, CREATED, 9223371331199999999); /* 294276-12-31 23:59:59.999999, the last PostgreSQL has */
    ck_assert(take_result(1, res));
    ck_assert_int_eq(events[0].created_at_us, EVENT_NO_TIME);
    ck_assert_int_eq(events[1].created_at_us, EVENT_NO_TIME);
    ck_assert_int_eq(events[2].created_at_us, EVENT_NO_TIME);
}
END_TEST

START_TEST(the_epoch_is_an_instant_and_null_is_none)
{
    claim();
    PGresult *res = event_row(1, "k");
    set_bigint(res, 0, CREATED, -EPOCH_2000_S * SECOND_US);
    ck_assert(take_result(1, res));
    ck_assert(take_result(1, event_row(2, "k")));
    ck_assert_int_eq(events[0].created_at_us, 0);
    ck_assert_int_eq(events[1].created_at_us, EVENT_NO_TIME);
}
END_TEST

START_TEST(oversize_event_comes_with_its_size_and_no_payload)
{
    claim();
    PGresult *res = event_row(1, NULL);
    set_bigint(res, 0, OVERSIZE, 104857600);
    ck_assert(take_result(1, res));
    ck_assert_int_eq(events[0].oversize_bytes, 104857600);
    ck_assert_ptr_null(events[0].payload.data);
    ck_assert_ptr_null(events[0].key.data);
}
END_TEST

START_TEST(attempts_count_for_the_head_only)
{
    claim();
    for (int64_t id = 10; id <= 11; id++) {
        PGresult *res = event_row(id, "k");
        set_int(res, 0, ATTEMPTS, 4);
        set_bigint(res, 0, HEAD, 10);
        ck_assert(take_result(1, res));
    }
    ck_assert_uint_eq(events[0].attempt, 5);
    ck_assert_uint_eq(events[1].attempt, 1);
    ck_assert(waited[0] && waited[1]);
}
END_TEST

START_TEST(key_that_waited_for_nothing_is_told)
{
    claim();
    PGresult *res = event_row(0, NULL);
    set_bigint(res, 0, HEAD, 10);
    set_text(res, 0, GONE, "k");
    ck_assert(take_result(1, res));
    ck_assert_uint_eq(event_count, 0);
    ck_assert_int_eq(waited_id, 10);
    ck_assert(span_equal(gone_key, span_of("k")));
    res = event_row(0, NULL);
    set_bigint(res, 0, HEAD, 11);
    ck_assert(take_result(1, res));
    ck_assert_ptr_null(gone_key.data);
}
END_TEST

START_TEST(event_that_is_not_due_is_told_and_not_taken)
{
    ordering_per_key.close(o);
    open_with(true, true);
    claim();
    PGresult *res = event_row(7, "k");
    set_bigint(res, 0, DELAY, 1500);
    ck_assert(take_result(1, res));
    ck_assert_uint_eq(event_count, 0);
    ck_assert_int_eq(delayed_id, 7);
    ck_assert_int_eq(delayed_us, 1500);
    ck_assert_int_eq(after, EVENT_NO_ID);
    ck_assert(span_equal(gone_key, span_of("k")));
    res = event_row(7, "k");
    set_bigint(res, 0, AFTER, 5);
    ck_assert(take_result(1, res));
    ck_assert_uint_eq(event_count, 0);
    ck_assert_int_eq(delayed_us, 3600 * SECOND_US);
    ck_assert_int_eq(after, 5);
    ck_assert(take_result(1, event_row(8, "k")));
    ck_assert_uint_eq(event_count, 1);
}
END_TEST

START_TEST(pause_is_told)
{
    claim();
    PGresult *res = event_row(0, NULL);
    set_int(res, 0, ATTEMPTS, -1);
    ck_assert(take_result(1, res));
    ck_assert(paused);
    ck_assert_uint_eq(event_count, 0);
}
END_TEST

START_TEST(event_without_an_id_is_refused)
{
    claim();
    ck_assert(!take_result(1, event_row(0, "k")));
    ck_assert_int_eq(err.kind, ERROR_INTERNAL);
}
END_TEST

START_TEST(id_of_another_width_is_none)
{
    claim();
    PGresult *res = event_row(0, "k");
    set_text(res, 0, ID, "abc");
    ck_assert(!take_result(1, res));
    ck_assert_int_eq(err.kind, ERROR_INTERNAL);
}
END_TEST

START_TEST(head_without_a_count_is_tried_for_the_first_time)
{
    claim();
    PGresult *res = event_row(10, "k");
    set_bigint(res, 0, HEAD, 10);
    ck_assert(take_result(1, res));
    ck_assert_uint_eq(events[0].attempt, 1);
    ck_assert(waited[0]);
}
END_TEST

START_TEST(event_that_the_relay_refuses_ends_the_claim)
{
    claim();
    refuse = true;
    ck_assert(!take_result(1, event_row(1, "k")));
}
END_TEST

/* ---- settling ---- */

START_TEST(settlement_is_done_then_buried_then_parked_then_resumed)
{
    const int64_t done[] = {1, 2, 3};
    const struct settle_failure failure = {.id = 3, .key = SPAN_LITERAL("k"), .attempts = 2, .why = SPAN_LITERAL("no")};
    const struct span resumed[] = {SPAN_LITERAL("r")};
    const struct settlement all = {.done = done,
                                   .done_count = 2,
                                   .buried = &failure,
                                   .buried_count = 1,
                                   .parked = &failure,
                                   .parked_count = 1,
                                   .resumed_keys = resumed,
                                   .resumed_key_count = 1};
    ck_assert_uint_eq(ordering_per_key.settle(o, &all, arena, statements), 5);
    static const int counts[] = {2, 4, 1, 8, 4};
    static const char *const words[] = {"delete from t", "outbox.dead", "is still in", "insert into outbox.parked",
                                        "update outbox.parked"};
    for (size_t i = 0; i < 5; i++) {
        ck_assert_int_eq(statements[i].count, counts[i]);
        ck_assert_msg(strstr(statements[i].sql, words[i]) != NULL, "%s", statements[i].sql);
    }
    size_t missing = 0;
    PGresult *none = PQmakeEmptyPGresult(NULL, PGRES_COMMAND_OK);
    for (size_t i = 0; i <= 5; i++)
        ordering_per_key.settled(o, &all, i, none, &missing);
    PQclear(none);
    ck_assert_uint_eq(missing, 3); /* two done, one buried; entries of waits are no events */
}
END_TEST

START_TEST(it_is_asked_whether_something_keeps_what_should_be_gone)
{
    const int64_t done[] = {1, 2, 3};
    const struct settle_failure failure = {.id = 3, .why = SPAN_LITERAL("no")};
    const struct settlement s = {.done = done, .done_count = 2, .buried = &failure, .buried_count = 1};
    ck_assert_uint_eq(ordering_per_key.settle(o, &s, arena, statements), 3);
    ck_assert_ptr_nonnull(strstr(statements[2].sql, "is still in"));
    ck_assert_int_eq(statements[2].count, 1);
    const struct settlement resumed = {.resumed_keyless_ids = done, .resumed_keyless_count = 1};
    ck_assert_uint_eq(ordering_per_key.settle(o, &resumed, arena, statements), 1);
}
END_TEST

START_TEST(settlement_has_no_statement_for_what_it_has_not)
{
    const int64_t keyless_ids[] = {9};
    const struct settlement resumed = {.resumed_keyless_ids = keyless_ids, .resumed_keyless_count = 1},
                            empty = {.done = NULL};
    ck_assert_uint_eq(ordering_per_key.settle(o, &empty, arena, statements), 0);
    ck_assert_uint_eq(ordering_per_key.settle(o, &resumed, arena, statements), 1);
    ck_assert_int_eq(statements[0].count, 4);
}
END_TEST

START_TEST(archive_knows_its_queue)
{
    ordering_per_key.close(o);
    open_with(true, true);
    const int64_t done[] = {1};
    const struct settlement s = {.done = done, .done_count = 1};
    ck_assert_uint_eq(ordering_per_key.settle(o, &s, arena, statements), 2);
    ck_assert_ptr_nonnull(strstr(statements[0].sql, "outbox.archive"));
    ck_assert_str_eq(statements[0].values[2], "orders");
}
END_TEST

START_TEST(released_ids_are_looked_at_again_at_their_time)
{
    probe(1000, 0, false, 0);
    look_at_all(1000);
    ordering_per_key.released(o, 50, SCAN_ID_MAX, 5 * SECOND_US);
    ck_assert(!ordering_per_key.pending(o, 5 * SECOND_US - 1));
    ck_assert_int_eq(ordering_per_key.pending_at(o), 5 * SECOND_US);
    ck_assert(ordering_per_key.pending(o, 5 * SECOND_US));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("per_key");
    TCase *tcase = tcase_create("per_key");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, claim_locks_then_reads_row_by_row_then_lets_go_of_its_snapshot);
    tcase_add_test(tcase, chance_decides_what_takes_the_one_place_of_a_claim);
    tcase_add_test(tcase, rows_are_looked_at_as_keys_repeat);
    tcase_add_test(tcase, what_was_not_looked_at_is_asked_for_again);
    tcase_add_test(tcase, claim_of_followed_keys_looks_for_no_others);
    tcase_add_test(tcase, failed_claim_is_asked_for_again);
    tcase_add_test(tcase, missed_keys_and_ids_are_reported);
    tcase_add_test(tcase, answer_of_another_shape_is_refused);
    tcase_add_test(tcase, answer_that_saw_nothing_is_taken);
    tcase_add_test(tcase, strategy_does_not_open_without_a_word_of_its_statements);
    tcase_add_test(tcase, id_of_another_width_is_none);
    tcase_add_test(tcase, head_without_a_count_is_tried_for_the_first_time);
    tcase_add_test(tcase, event_is_decoded_with_its_nulls);
    tcase_add_test(tcase, instants_at_infinity_or_too_far_away_are_no_instants);
    tcase_add_test(tcase, the_epoch_is_an_instant_and_null_is_none);
    tcase_add_test(tcase, oversize_event_comes_with_its_size_and_no_payload);
    tcase_add_test(tcase, attempts_count_for_the_head_only);
    tcase_add_test(tcase, key_that_waited_for_nothing_is_told);
    tcase_add_test(tcase, event_that_is_not_due_is_told_and_not_taken);
    tcase_add_test(tcase, pause_is_told);
    tcase_add_test(tcase, event_without_an_id_is_refused);
    tcase_add_test(tcase, event_that_the_relay_refuses_ends_the_claim);
    tcase_add_test(tcase, settlement_is_done_then_buried_then_parked_then_resumed);
    tcase_add_test(tcase, it_is_asked_whether_something_keeps_what_should_be_gone);
    tcase_add_test(tcase, settlement_has_no_statement_for_what_it_has_not);
    tcase_add_test(tcase, archive_knows_its_queue);
    tcase_add_test(tcase, released_ids_are_looked_at_again_at_their_time);
    return run_suite(suite);
}
