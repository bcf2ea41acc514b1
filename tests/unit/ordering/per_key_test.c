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
    claim_for(&request);
    ck_assert_uint_eq(section(SECTION_NAMED), 0);
    ck_assert_uint_eq(section(SECTION_DUE), 1);
    ck_assert_uint_eq(section(SECTION_FRESH), 2); /* nothing is known of ids: there are no ends */
    ck_assert_uint_eq(reading(), 3);
    ck_assert_int_eq(statements[reading()].count, 6);
    ck_assert_str_eq(statements[reading()].values[0], "orders");
    ck_assert_int_eq(read_parameter(3), 4);
    ck_assert_int_ge(read_parameter(4), 10);
    ck_assert_ptr_nonnull(strstr(statements[reading() + 1].sql, "set local"));
    const struct statement before[4] = {statements[0], statements[1], statements[2], statements[3]};
    claim_for(&request);
    for (size_t i = 0; i < 4; i++) /* prepared by their addresses */
        ck_assert_ptr_eq(statements[i].sql, before[i].sql);
}
END_TEST

START_TEST(rows_that_cannot_be_read_are_named_first)
{
    const struct sql_variable *guarded =
        sql_variables_with(variables, (const struct sql_variable[]){{"where", "guarded_where"}, {NULL, NULL}}, arena);
    struct ordering_options options = options_with(true, false);
    options.guarded = guarded;
    ordering_per_key.close(o);
    o = ordering_per_key.open(&options, &err);
    const int64_t unreadable[] = {5};
    struct claim_request request = {
        .max_keys = 10, .events_per_key = 4, .unreadable = unreadable, .unreadable_count = 1};
    probe(1000, 0, false, 0);
    claim_for(&request);
    ck_assert(plan.guarded);
    ck_assert_int_eq(statements[0].count, 1);
    ck_assert_uint_eq(section(SECTION_DUE), 1);
    const enum claim_section_kind of_ids[] = {SECTION_FRESH, SECTION_NEWEST, SECTION_OLDEST};
    for (int i = 0; i < 3; i++)
        ck_assert_ptr_nonnull(strstr(statements[section(of_ids[i])].sql, "guarded_where"));
    ck_assert(take_result(0, result_of(1)));
    take_seen(1, 900);
    ck_assert_int_eq(plan.locked, 2);
    ck_assert(take_row(event_row(1, "k")));
    finish_claim();
    claim_for(&(struct claim_request){.max_keys = 1});
    ck_assert(!plan.guarded);
    ck_assert_ptr_null(strstr(statements[section(SECTION_FRESH)].sql, "guarded_where"));
}
END_TEST

/* A section that was full, of which so many keys had a place. */
static void claim_is_done(int64_t keys)
{
    PGresult *res = lock_row_of(950, 1100);
    set_bigint(res, 0, FULL, 1);
    set_bigint(res, 0, LOCKED, keys);
    set_bigint(res, 0, TRIED, keys);
    answer(SECTION_FRESH, res);
    ck_assert(take_locks());
    ordering_per_key.claim_done(o, &plan, MS_US, SECOND_US);
}

START_TEST(rows_are_looked_at_as_keys_repeat)
{
    probe(1000, 0, false, 0);
    claim(); /* both ends, with a share of 20 for the oldest */
    int64_t few = section_parameter(SECTION_NEWEST, 3) + section_parameter(SECTION_OLDEST, 3);
    ck_assert_int_ge(few, 10);
    ck_assert_int_le(few, 20);
    ck_assert_int_gt(section_parameter(SECTION_NEWEST, 3), 2 * section_parameter(SECTION_OLDEST, 3));
    claim_is_done(8);
    ck_assert(plan.thin);
    ordering_per_key.released(o, 5, 9, 0); /* so that the newest ids are not all that there is to look at */
    claim();
    int64_t more = section_parameter(SECTION_FRESH, 3);
    ck_assert_int_ge(more, few);
    for (int i = 0; i < 10; i++) {
        claim_is_done(3);
        ordering_per_key.released(o, 5, 9, 0);
        claim();
    }
    int64_t most = section_parameter(SECTION_NEWEST, 3) + section_parameter(SECTION_OLDEST, 3);
    ck_assert_int_gt(most, more);
    ck_assert_int_le(most, 50);
    for (int i = 0; i < 40; i++) {
        claim_is_done(9);
        ck_assert(!plan.thin);
        ordering_per_key.released(o, 5, 9, 0);
        claim();
    }
    ck_assert_int_le(section_parameter(SECTION_FRESH, 3), 20);
}
END_TEST

START_TEST(what_was_not_looked_at_is_asked_for_again)
{
    probe(1000, 0, false, 0);
    claim();
    ck_assert_int_eq(fresh_above(), 1000);
    ck_assert_int_eq(ids_of(SECTION_NEWEST).lo, ids_of(SECTION_OLDEST).hi + 1);
    PGresult *newest = lock_row_of(790, 900), *oldest = lock_row_of(7, 30);
    set_bigint(newest, 0, CUT_MIN, 790);
    set_bigint(newest, 0, CUT_MAX, 800);
    set_bigint(oldest, 0, CUT_MIN, 20);
    set_bigint(oldest, 0, CUT_MAX, 30);
    answer(SECTION_NEWEST, newest);
    answer(SECTION_OLDEST, oldest);
    ck_assert(take_locks());
    finish_claim();
    ck_assert(ordering_per_key.pending(o, 0));
    claim();
    ck_assert_int_eq(ids_of(SECTION_NEWEST).hi, 800);
    ck_assert_int_le(ids_of(SECTION_NEWEST).lo, 800);
    ck_assert_int_eq(ids_of(SECTION_OLDEST).lo, 20);
}
END_TEST

START_TEST(claim_of_followed_keys_looks_for_no_others)
{
    const struct span follow[] = {SPAN_LITERAL("f")};
    probe(1000, 0, false, 0);
    struct claim_request request = {.max_keys = 1, .follow_keys = follow, .follow_key_count = 1, .followed_only = true};
    claim_for(&request);
    ck_assert(!has_section(SECTION_FRESH) && !has_section(SECTION_NEWEST) && !has_section(SECTION_OLDEST));
    take_nothing();
    finish_claim();
    claim();
    ck_assert_int_eq(ids_of(SECTION_NEWEST).hi, 1000); /* what there was to look at still is */
    ck_assert_int_eq(ids_of(SECTION_OLDEST).lo, SCAN_ID_MIN);
}
END_TEST

START_TEST(failed_claim_is_asked_for_again)
{
    probe(1000, 0, false, 0);
    claim();
    int64_t lo = ids_of(SECTION_OLDEST).lo, hi = ids_of(SECTION_NEWEST).hi;
    ck_assert(ordering_per_key.claim_failed != NULL);
    ordering_per_key.claim_failed(o, &plan);
    claim();
    ck_assert_int_eq(ids_of(SECTION_OLDEST).lo, lo);
    ck_assert_int_eq(ids_of(SECTION_NEWEST).hi, hi);
}
END_TEST

START_TEST(missed_ids_are_looked_at_again)
{
    probe(1000, 0, false, 0);
    claim();
    PGresult *res = lock_row_of(300, 400);
    set_bigint(res, 0, MISSED_MIN, 300);
    set_bigint(res, 0, MISSED_MAX, 400);
    answer(SECTION_OLDEST, res);
    ck_assert(take_locks());
    finish_claim();
    ck_assert_int_ne(ordering_per_key.pending_at(o), INSTANT_NEVER);
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
    ck_assert(take_row(res));
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
    ck_assert(take_row(res));
    res = event_row(2, "k");
    set_bigint(res, 0, CREATED, INT64_MIN);
    ck_assert(take_row(res));
    res = event_row(3, "k");
    set_bigint(res, 0, CREATED, 9223371331199999999); /* 294276-12-31 23:59:59.999999, the last PostgreSQL has */
    ck_assert(take_row(res));
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
    ck_assert(take_row(res));
    ck_assert(take_row(event_row(2, "k")));
    ck_assert_int_eq(events[0].created_at_us, 0);
    ck_assert_int_eq(events[1].created_at_us, EVENT_NO_TIME);
}
END_TEST

START_TEST(oversize_event_comes_with_its_size_and_no_payload)
{
    claim();
    PGresult *res = event_row(1, NULL);
    set_bigint(res, 0, OVERSIZE, 104857600);
    ck_assert(take_row(res));
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
        ck_assert(take_row(res));
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
    ck_assert(take_row(res));
    ck_assert_uint_eq(event_count, 0);
    ck_assert_int_eq(waited_id, 10);
    ck_assert(span_equal(gone_key, span_of("k")));
    res = event_row(0, NULL);
    set_bigint(res, 0, HEAD, 11);
    ck_assert(take_row(res));
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
    ck_assert(take_row(res));
    ck_assert_uint_eq(event_count, 0);
    ck_assert_int_eq(delayed_id, 7);
    ck_assert_int_eq(delayed_us, 1500);
    ck_assert_int_eq(after, EVENT_NO_ID);
    ck_assert(span_equal(gone_key, span_of("k")));
    res = event_row(7, "k");
    set_bigint(res, 0, AFTER, 5);
    ck_assert(take_row(res));
    ck_assert_uint_eq(event_count, 0);
    ck_assert_int_eq(delayed_us, 3600 * SECOND_US);
    ck_assert_int_eq(after, 5);
    ck_assert(take_row(event_row(8, "k")));
    ck_assert_uint_eq(event_count, 1);
}
END_TEST

START_TEST(pause_is_told)
{
    claim();
    PGresult *res = event_row(0, NULL);
    set_int(res, 0, ATTEMPTS, -1);
    ck_assert(take_row(res));
    ck_assert(paused);
    ck_assert_uint_eq(event_count, 0);
}
END_TEST

START_TEST(event_without_an_id_is_refused)
{
    claim();
    ck_assert(!take_row(event_row(0, "k")));
    ck_assert_int_eq(err.kind, ERROR_INTERNAL);
}
END_TEST

START_TEST(id_of_another_width_is_none)
{
    claim();
    PGresult *res = event_row(0, "k");
    set_text(res, 0, ID, "abc");
    ck_assert(!take_row(res));
    ck_assert_int_eq(err.kind, ERROR_INTERNAL);
}
END_TEST

START_TEST(head_without_a_count_is_tried_for_the_first_time)
{
    claim();
    PGresult *res = event_row(10, "k");
    set_bigint(res, 0, HEAD, 10);
    ck_assert(take_row(res));
    ck_assert_uint_eq(events[0].attempt, 1);
    ck_assert(waited[0]);
}
END_TEST

START_TEST(event_that_the_relay_refuses_ends_the_claim)
{
    claim();
    refuse = true;
    ck_assert(!take_row(event_row(1, "k")));
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
    tcase_add_test(tcase, rows_that_cannot_be_read_are_named_first);
    tcase_add_test(tcase, rows_are_looked_at_as_keys_repeat);
    tcase_add_test(tcase, what_was_not_looked_at_is_asked_for_again);
    tcase_add_test(tcase, claim_of_followed_keys_looks_for_no_others);
    tcase_add_test(tcase, failed_claim_is_asked_for_again);
    tcase_add_test(tcase, missed_ids_are_looked_at_again);
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
