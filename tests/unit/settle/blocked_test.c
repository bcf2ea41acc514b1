/* What somebody else holds, in batches made by hand: it is set aside alone, for a while, and is nobody's fault. */
#include "relay/settle/blocked.h"

#include "relay/claim/claim.h"
#include "relay/settle/refusal.h"
#include "relay/settle/settle.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"
#include "tests/unit/stage/scripted_db.h"

#define KEYS 64

static struct stage stage;
static struct batch *batch;
static struct config process;
static instant_us stage_now;
static struct round round_;

static void set_up(void)
{
    stage_init(&stage, "there");
    script_reset();
    process.statement_timeout_us = 30 * SECOND_US;
    stage.queue.process = &process;
    stage.config.keys_per_claim = KEYS;
    batch = stage_batch(&stage);
    stage_now = 10 * SECOND_US;
}

static void tear_down(void)
{
    stage_done(&stage);
}

static void finish_lanes(int64_t lanes)
{
    for (int64_t i = 0; i < lanes; i++) {
        const char *key = arena_printf(batch->arena, "%d", (int)i);
        stage_finish(stage_lane_of_three(batch, i * 3 + 1, key), 3, LANE_DELIVERED);
    }
}

static struct settle_job *collect(void)
{
    struct settle_job *job = settle_collect(&stage.queue, stage.claim.batches, false);
    if (job)
        job->sent_at = stage_now;
    return job;
}

/* It has failed with `sqlstate` after so long. */
static bool fails(struct settle_job *job, const char *sqlstate, int64_t after_us)
{
    stage_now += after_us;
    round_ = (struct round){.job = job, .rule = sqlstate_rule(sqlstate)};
    round_.refusal = round_.rule->refusal;
    error_set(&round_.error, ERROR_CONFLICT, "no (SQLSTATE %s)", sqlstate);
    bool again = refusal_answer(&stage.queue, &round_, stage_now);
    ck_assert_ptr_null(round_.job);
    return again;
}

static bool has_between(const struct settle_job *job, int64_t lo, int64_t hi)
{
    for (size_t i = 0; i < job->settlement.done_count; i++)
        if (job->settlement.done[i] >= lo && job->settlement.done[i] <= hi)
            return true;
    return false;
}

/* Settles all that can be while somebody holds the rows from `lo` to `hi`. Returns how often it has met him. */
static int settle_but(int64_t lo, int64_t hi)
{
    int met = 0;
    for (struct settle_job *job; (job = collect());)
        if (!has_between(job, lo, hi)) {
            stage_now += MS_US;
            refusal_commit(&stage.queue, job, stage_now);
        } else {
            ck_assert(fails(job, "55P03", 20 * MS_US));
            met++;
        }
    return met;
}

START_TEST(row_that_somebody_holds_is_set_aside_alone)
{
    finish_lanes(KEYS);
    ck_assert_int_le(settle_but(100, 100), 16);
    ck_assert_uint_eq(batch->unsettled, 1);
    ck_assert_uint_eq(batch->blocked, 1);
    ck_assert_uint_eq(batch->finished, 0);
    struct lane *lane = batch->lanes;
    while (lane->state == LANE_SETTLED)
        lane = lane->next;
    ck_assert_int_eq(lane->state, LANE_BLOCKED);
    ck_assert_int_eq(lane->first->event.id, 100);
    ck_assert_ptr_null(lane->refused);
    ck_assert_uint_eq(stage.queue.metrics.retried + stage.queue.metrics.parked, 0);
    ck_assert_int_eq(stage.queue.refusal.all_refused_since, 0); /* nothing is wrong with the table */
}
END_TEST

START_TEST(what_is_set_aside_is_tried_again_after_waits_that_grow)
{
    finish_lanes(2);
    settle_but(1, 1);
    int64_t longest = 0;
    for (int i = 0; i < 12; i++) {
        ck_assert_int_gt(stage.queue.blocked.wake_at, stage_now);
        int64_t wait = stage.queue.blocked.wake_at - stage_now;
        ck_assert_int_le(wait, 5 * SECOND_US);
        longest = wait > longest ? wait : longest;
        blocked_wake(&stage.queue, stage.queue.blocked.wake_at - 1);
        ck_assert_ptr_null(collect());
        stage_now = stage.queue.blocked.wake_at;
        blocked_wake(&stage.queue, stage_now);
        ck_assert_int_eq(stage.queue.blocked.wake_at, 0);
        ck_assert_int_le(settle_but(1, 1), 2);
    }
    ck_assert_int_gt(longest, 2 * SECOND_US);
    stage_now = stage.queue.blocked.wake_at;
    blocked_wake(&stage.queue, stage_now);
    ck_assert_int_eq(settle_but(-1, -1), 0);
    ck_assert_uint_eq(batch->unsettled, 0);
}
END_TEST

START_TEST(where_nothing_passes_what_is_left_waits_without_being_asked_for)
{
    finish_lanes(KEYS);
    ck_assert_int_le(settle_but(1, INT64_MAX), 32 + 8);
    ck_assert_uint_eq(batch->blocked, KEYS);
    while (stage.queue.blocked.wake_at > 0) {
        stage_now = stage.queue.blocked.wake_at;
        blocked_wake(&stage.queue, stage_now);
    }
    settle_but(-1, -1);
    ck_assert_uint_eq(batch->unsettled, 0);
}
END_TEST

START_TEST(waits_for_locks_are_short_while_somebody_holds_one)
{
    ck_assert_ptr_null(blocked_lock_timeout(&stage.queue, NULL, stage_now));
    stage.queue.side_status.lock_timeout = "5000ms";
    script.shared = true; /* nobody has set it */
    ck_assert_str_eq(blocked_lock_timeout(&stage.queue, NULL, stage_now), "5000ms");
    script.shared = false;
    finish_lanes(1);
    settle_but(1, 1);
    ck_assert_str_eq(blocked_lock_timeout(&stage.queue, NULL, stage_now), "20ms");
    ck_assert_ptr_null(blocked_lock_timeout(&stage.queue, NULL, stage_now + 60 * SECOND_US));
}
END_TEST

START_TEST(prefix_of_a_lane_under_way_waits_for_its_end)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    stage_ack(lane, 1);
    struct settle_job *job = settle_collect(&stage.queue, stage.claim.batches, true);
    ck_assert(fails(job, "55P03", SECOND_US));
    ck_assert_int_eq(lane->state, LANE_OPEN);
    ck_assert_ptr_null(settle_collect(&stage.queue, stage.claim.batches, true));
    stage_finish(lane, 2, LANE_DELIVERED);
    settle_but(-1, -1);
    ck_assert_uint_eq(batch->unsettled, 0);
}
END_TEST

/* Its locks end with its transaction, and what else there is to settle cannot wait for it. */
START_TEST(claim_that_has_locked_rows_is_finished_without_what_is_set_aside)
{
    finish_lanes(2);
    settle_but(1, 1);
    ck_assert(!claim_is_finished(&stage.claim));
    stage.noting.ordering.locks_rows = true;
    ck_assert(claim_is_finished(&stage.claim));
}
END_TEST

/* ---- what takes too long ---- */

/* Each row takes so long. Returns how long the settlements took that did not pass. */
static int64_t settle_slowly(int64_t row_us)
{
    int64_t wasted_us = 0;
    for (struct settle_job *job; (job = collect());) {
        int64_t took_us = (int64_t)job->row_count * row_us;
        if (took_us < process.statement_timeout_us) {
            stage_now += took_us;
            refusal_commit(&stage.queue, job, stage_now);
        } else {
            ck_assert(fails(job, "57014", process.statement_timeout_us));
            wasted_us += process.statement_timeout_us;
        }
    }
    return wasted_us;
}

START_TEST(what_takes_too_long_is_settled_in_parts)
{
    finish_lanes(KEYS); /* 192 events */
    ck_assert_int_le(settle_slowly(SECOND_US), 60 * SECOND_US);
    ck_assert_uint_eq(batch->unsettled, 0);
    ck_assert_uint_eq(stage.queue.metrics.retried, 0);
}
END_TEST

START_TEST(what_comes_next_is_settled_in_such_parts_until_they_are_quick)
{
    finish_lanes(KEYS);
    settle_slowly(SECOND_US);
    ck_assert_uint_gt(stage.queue.refusal.in_time.most, 0);
    batch = stage_batch(&stage);
    finish_lanes(KEYS);
    ck_assert_int_eq(settle_slowly(SECOND_US), 0);
    while (stage.queue.refusal.in_time.most > 0) {
        size_t most = stage.queue.refusal.in_time.most;
        batch = stage_batch(&stage);
        batch->bytes_max = SIZE_MAX;
        finish_lanes((int64_t)most / 3 + 1);
        ck_assert_int_eq(settle_slowly(1), 0);
        ck_assert(stage.queue.refusal.in_time.most == 0 || stage.queue.refusal.in_time.most > most);
    }
}
END_TEST

START_TEST(row_that_takes_too_long_by_itself_is_to_blame)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 1, LANE_RELEASED);
    ck_assert(fails(collect(), "57014", process.statement_timeout_us));
    ck_assert_int_eq(batch->lanes->refused->event.id, 1);
}
END_TEST

START_TEST(table_where_each_row_takes_too_long_is_not_asked_for_all_of_them)
{
    finish_lanes(KEYS);
    int tries = 1;
    while (fails(collect(), "57014", process.statement_timeout_us))
        tries++;
    ck_assert_int_le(tries, 4);
}
END_TEST

START_TEST(row_whose_statement_somebody_has_cancelled_is_not_to_blame)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 1, LANE_RELEASED);
    ck_assert(fails(collect(), "57014", SECOND_US));
    ck_assert_ptr_null(batch->lanes->refused);
    ck_assert_int_eq(batch->lanes->state, LANE_BLOCKED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("blocked");
    TCase *tcase = tcase_create("blocked");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, row_that_somebody_holds_is_set_aside_alone);
    tcase_add_test(tcase, what_is_set_aside_is_tried_again_after_waits_that_grow);
    tcase_add_test(tcase, where_nothing_passes_what_is_left_waits_without_being_asked_for);
    tcase_add_test(tcase, waits_for_locks_are_short_while_somebody_holds_one);
    tcase_add_test(tcase, prefix_of_a_lane_under_way_waits_for_its_end);
    tcase_add_test(tcase, claim_that_has_locked_rows_is_finished_without_what_is_set_aside);
    tcase_add_test(tcase, what_takes_too_long_is_settled_in_parts);
    tcase_add_test(tcase, what_comes_next_is_settled_in_such_parts_until_they_are_quick);
    tcase_add_test(tcase, row_that_takes_too_long_by_itself_is_to_blame);
    tcase_add_test(tcase, table_where_each_row_takes_too_long_is_not_asked_for_all_of_them);
    tcase_add_test(tcase, row_whose_statement_somebody_has_cancelled_is_not_to_blame);
    return run_suite(suite);
}
