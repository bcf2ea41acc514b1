/* On an ordinary day a claim looks at the newest ids alone, by a small statement. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/per_key_stage.h"

/* Columns of fresh_lock.sql. */
enum {
    FRESH_MIN,
    FRESH_MAX,
    FRESH_MISSED_MIN,
    FRESH_MISSED_MAX,
    FRESH_LOCKED,
    FRESH_CLAIM,
    FRESH_KEYLESS,
    MORE,
    DUE,
    FRESH_ALL
};

static const struct claim_request plain = {.max_keys = 10, .events_per_key = 4};

static PGresult *fresh_row(void)
{
    PGresult *res = result_of(FRESH_ALL);
    for (int column = 0; column < FRESH_ALL; column++)
        set_text(res, 0, column, NULL);
    return res;
}

static bool is_fresh_for(const struct claim_request *request)
{
    claim_for(request);
    bool fresh = strstr(statements[0].sql, "as waits") == NULL;
    ck_assert(fresh == plan.fresh);
    ck_assert_int_eq(statements[0].count == 4, fresh);
    return fresh;
}

/* It has no event. The sweep is not due again before that. */
static void end_claim(void)
{
    ordering_per_key.claim_done(o, &plan, MS_US, SECOND_US);
}

/* What the ids up to 1000 had to show was looked at. */
static void look_at_what_is_known(void)
{
    probe(1000, 0, false, 0);
    for (int i = 0; i < 9 && !is_fresh_for(&plain); i++) {
        take_seen(1, 900);
        end_claim();
    }
    ordering_per_key.claim_failed(o, &plan);
}

START_TEST(newest_ids_from_a_known_one_on_are_asked_for)
{
    const struct claim_request request = {.max_keys = 40, .events_per_key = 4};
    look_at_what_is_known();
    ck_assert(is_fresh_for(&request));
    ck_assert_int_eq(parameter(0, 1), 1000);
    ck_assert_int_eq(parameter(0, 2), 40);
    ck_assert_str_eq(statements[0].values[2], "orders");
    ck_assert_int_eq(parameter(0, 4), 7);
    ck_assert_str_eq(statements[1].values[0], "orders");
    ck_assert_int_eq(parameter(1, 3), 4);
}
END_TEST

START_TEST(whatever_else_there_is_to_look_at_takes_the_other_statement)
{
    const struct span key[] = {SPAN_LITERAL("a")};
    ck_assert(!is_fresh_for(&plain)); /* nothing is known of ids */
    ordering_per_key.claim_failed(o, &plan);
    look_at_what_is_known();
    struct claim_request request = plain;
    request.follow_keys = key;
    request.follow_key_count = 1;
    ck_assert(!is_fresh_for(&request));
    request = plain;
    request.busy_keys = key; /* what is found of it has to be told */
    request.busy_key_count = 1;
    ck_assert(!is_fresh_for(&request));
    request = plain;
    request.behind = true;
    ck_assert(!is_fresh_for(&request));
    request = plain;
    request.followed_only = true;
    ck_assert(!is_fresh_for(&request));
    ordering_per_key.released(o, 5, 9, 0);
    ck_assert(!is_fresh_for(&plain));
}
END_TEST

START_TEST(what_was_locked_and_missed_is_taken)
{
    look_at_what_is_known();
    ck_assert(is_fresh_for(&plain));
    PGresult *res = fresh_row();
    set_bigint(res, 0, FRESH_MIN, 1001);
    set_bigint(res, 0, FRESH_MAX, 1004);
    set_bigint(res, 0, FRESH_MISSED_MIN, 1002);
    set_bigint(res, 0, FRESH_MISSED_MAX, 1003);
    set_bigint(res, 0, FRESH_LOCKED, 2);
    set_text(res, 0, FRESH_CLAIM, "{a}");
    set_text(res, 0, FRESH_KEYLESS, "{1004}");
    set_bigint(res, 0, MORE, 1);
    ck_assert(take_result(0, res));
    ck_assert_int_eq(plan.locked, 2);
    ck_assert_uint_eq(plan.locked_keys.size, 3);
    ck_assert_uint_eq(plan.locked_keyless_ids.size, 6);
    ck_assert(plan.left);
    ck_assert(!plan.thin); /* of rows that have too few keys it says nothing */
    ck_assert_int_eq(plan.report.seen_max, 1004);
    end_claim();
    ck_assert(ordering_per_key.pending_at(o) != INSTANT_NEVER); /* what was missed is looked at again */
}
END_TEST

START_TEST(wait_that_is_over_is_looked_for_by_the_next_claim)
{
    look_at_what_is_known();
    ck_assert(is_fresh_for(&plain));
    PGresult *res = fresh_row();
    set_bigint(res, 0, DUE, 1);
    ck_assert(take_result(0, res));
    end_claim();
    ck_assert(ordering_per_key.pending(o, 0));
    ck_assert(!is_fresh_for(&plain));
    ck_assert(has_section(SECTION_DUE));
    take_seen(1, 900);
    end_claim();
    ck_assert(is_fresh_for(&plain)); /* until one says so again */
}
END_TEST

START_TEST(answer_of_another_shape_is_an_error)
{
    look_at_what_is_known();
    ck_assert(is_fresh_for(&plain));
    ck_assert(!take_result(0, lock_row()));
    ck_assert_int_eq(err.kind, ERROR_INTERNAL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("per_key_fresh");
    TCase *tcase = tcase_create("per_key_fresh");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, newest_ids_from_a_known_one_on_are_asked_for);
    tcase_add_test(tcase, whatever_else_there_is_to_look_at_takes_the_other_statement);
    tcase_add_test(tcase, what_was_locked_and_missed_is_taken);
    tcase_add_test(tcase, wait_that_is_over_is_looked_for_by_the_next_claim);
    tcase_add_test(tcase, answer_of_another_shape_is_an_error);
    return run_suite(suite);
}
