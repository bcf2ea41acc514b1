/* What the database refuses to settle, in batches made by hand: fewer and fewer at a time, down to the one to blame. */
#include "relay/settle/refusal.h"

#include "relay/settle/blame.h"

#include "relay/settle/settle.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

static struct stage stage;
static struct batch *batch;
static instant_us stage_now;
static struct settle_failure parked;

static void set_up(void)
{
    stage_init(&stage, "there");
    batch = stage_batch(&stage);
    stage_now = 10 * SECOND_US;
    parked = (struct settle_failure){.id = 0};
}

static void tear_down(void)
{
    stage_done(&stage);
}

static struct settle_job *collect(bool prefixes)
{
    return settle_collect(&stage.queue, stage.claim.batches, prefixes);
}

static bool has(const struct settle_job *job, int64_t bad)
{
    for (size_t i = 0; i < job->settlement.done_count; i++)
        if (job->settlement.done[i] == bad)
            return true;
    return false;
}

static const struct error cause = {.kind = ERROR_REFUSED, .text = "no (SQLSTATE 23503)"};

/* Settles until nothing is left but ends, or until it is told to wait; the table does not let event `bad` go. Returns
 * how often it was refused. */
static int settle_all(int64_t bad, bool *ret_waits)
{
    int refused = 0;
    *ret_waits = false;
    for (struct settle_job *job; !*ret_waits && (job = collect(false));) {
        stage_now += MS_US;
        if (job->settlement.parked_count + job->settlement.buried_count > 0 || !has(job, bad)) {
            parked = job->settlement.parked_count > 0 ? job->settlement.parked[0] : parked;
            refusal_commit(&stage.queue, job, stage_now);
            continue;
        }
        refused++;
        *ret_waits = !refusal_halve(&stage.queue, job, refusal_blames, &cause, stage_now);
    }
    return refused;
}

START_TEST(one_row_is_found_among_many_and_waits_alone)
{
    for (int64_t i = 0; i < 64; i++) {
        const char *key = arena_printf(batch->arena, "%d", (int)i);
        stage_finish(stage_lane_of_three(batch, i * 3 + 1, key), 3, LANE_DELIVERED);
    }
    bool waits;
    ck_assert_int_le(settle_all(100, &waits), 16);
    ck_assert(!waits);
    ck_assert_int_eq(parked.id, 100);
    ck_assert_int_eq(parked.attempts, 1);
    ck_assert_int_gt(parked.delay_us, 0);
    ck_assert(span_equal(parked.key, span_of("33")));
    ck_assert_ptr_nonnull(strstr(parked.why.data, "cannot be taken out of"));
    ck_assert_ptr_nonnull(strstr(parked.why.data, "SQLSTATE 23503"));
    ck_assert_uint_eq(batch->unsettled, 0);
    ck_assert_uint_eq(stage.queue.metrics.retried, 1);
}
END_TEST

START_TEST(last_attempt_closes_the_key_even_where_dead_letters_are_made)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    lane->first->event.attempt = 3;
    stage_finish(lane, 3, LANE_DELIVERED);
    bool waits;
    settle_all(1, &waits);
    ck_assert_int_eq(parked.id, 1);
    ck_assert_int_lt(parked.delay_us, 0);
    ck_assert_uint_eq(stage.queue.metrics.parked, 1);
}
END_TEST

/* Two keys of one claim, each with one event that is delivered and one that was given back. */
static void two_refused(void)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 1, LANE_RELEASED);
    stage_finish(stage_lane_of_three(batch, 11, "b"), 1, LANE_RELEASED);
}

/* Everything is refused from now to `until`. Returns how often it was told to wait. */
static int refuse_everything(struct batch *batches, instant_us until)
{
    int waits = 0;
    while (stage_now < until) {
        stage_now += SECOND_US;
        struct settle_job *job = settle_collect(&stage.queue, batches, false);
        ck_assert_ptr_nonnull(job);
        ck_assert_uint_gt(job->settlement.done_count, 0);
        waits += !refusal_halve(&stage.queue, job, refusal_blames, &cause, stage_now);
    }
    return waits;
}

START_TEST(table_that_lets_nothing_go_is_waited_for)
{
    two_refused();
    ck_assert_int_gt(refuse_everything(batch, stage_now + 3600 * SECOND_US), 1000);
    ck_assert_ptr_null(batch->lanes->refused);
    ck_assert_ptr_null(batch->lanes_end->refused);
    bool waits;
    ck_assert_int_eq(settle_all(-1, &waits), 0);
    ck_assert_uint_eq(batch->unsettled, 0);
    ck_assert_uint_eq(stage.queue.metrics.retried, 0);
}
END_TEST

START_TEST(one_key_at_a_time_finds_out_whether_the_table_lets_others_go)
{
    ck_assert_int_eq(blame_test_claim_at(&stage.queue), INSTANT_NEVER);
    two_refused();
    refuse_everything(batch, stage_now + 5 * SECOND_US);
    ck_assert_int_le(blame_test_claim_at(&stage.queue), stage_now);
    blame_note_claim(&stage.queue, stage_now);
    ck_assert_int_eq(blame_test_claim_at(&stage.queue), stage_now + 30 * SECOND_US);

    batch = stage_batch(&stage);
    struct batch *trial = batch;
    stage_finish(stage_lane_of_three(batch, 21, "c"), 3, LANE_DELIVERED);
    refusal_commit(&stage.queue, settle_collect(&stage.queue, trial, false), stage_now);
    ck_assert_int_eq(blame_test_claim_at(&stage.queue), INSTANT_NEVER);
    bool waits;
    settle_all(11, &waits);
    ck_assert(!waits);
    ck_assert_int_eq(parked.id, 11);
}
END_TEST

START_TEST(settlement_sent_before_the_refusal_does_not_prove_that_the_table_accepts_rows)
{
    two_refused();
    struct batch *doubtful = batch;
    batch = stage_batch(&stage);
    stage_finish(stage_lane_of_three(batch, 21, "c"), 3, LANE_DELIVERED);
    doubtful->halving.most = 2; /* so that the other is collected by itself */
    struct settle_job *before = settle_collect(&stage.queue, batch, false);
    refuse_everything(doubtful, stage_now + 5 * SECOND_US);
    refusal_commit(&stage.queue, before, stage_now);
    ck_assert_int_gt(refuse_everything(doubtful, stage_now + 5 * SECOND_US), 0);
    ck_assert_ptr_null(doubtful->lanes->refused);
    ck_assert_ptr_null(doubtful->lanes_end->refused);
}
END_TEST

START_TEST(rows_that_were_gone_say_nothing_about_others)
{
    two_refused();
    struct batch *doubtful = batch;
    refuse_everything(doubtful, stage_now + 5 * SECOND_US);
    batch = stage_batch(&stage);
    stage_finish(stage_lane_of_three(batch, 21, "c"), 3, LANE_DELIVERED);
    struct settle_job *job = settle_collect(&stage.queue, batch, false);
    job->missing = 3;
    refusal_commit(&stage.queue, job, stage_now);
    ck_assert_int_gt(refuse_everything(doubtful, stage_now + 5 * SECOND_US), 0);
    ck_assert_ptr_null(doubtful->lanes->refused);
}
END_TEST

START_TEST(only_key_of_a_claim_is_blamed_at_once_and_the_next_one_is_not)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    stage_finish(lane, 1, LANE_RELEASED);
    ck_assert(refusal_halve(&stage.queue, collect(false), refusal_blames, &cause, stage_now));
    ck_assert_ptr_nonnull(lane->refused);
    ck_assert_int_eq(lane->refused->event.id, 1);
    refusal_commit(&stage.queue, collect(false), stage_now);

    stage_now += SECOND_US;
    batch = stage_batch(&stage);
    lane = stage_lane_of_three(batch, 11, "b");
    stage_finish(lane, 1, LANE_RELEASED);
    ck_assert(!refusal_halve(&stage.queue, collect(false), refusal_blames, &cause, stage_now));
    ck_assert_ptr_null(lane->refused);
}
END_TEST

/* A cached plan may be to blame, or what somebody else does to the table just now. */
START_TEST(only_key_of_a_claim_is_not_blamed_for_an_error_of_the_server_before_others_have_passed)
{
    const struct error internal = {.kind = ERROR_INTERNAL, .text = "cache lookup failed (SQLSTATE XX000)"};
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    stage_finish(lane, 1, LANE_RELEASED);
    ck_assert(!refusal_halve(&stage.queue, collect(false), refusal_blames, &internal, stage_now));
    ck_assert_ptr_null(lane->refused);
    stage.queue.refusal.blame_until = stage_now + 1;
    ck_assert(refusal_halve(&stage.queue, collect(false), refusal_blames, &internal, stage_now));
    ck_assert_ptr_nonnull(lane->refused);
}
END_TEST

START_TEST(row_that_was_blamed_is_blamed_again_when_its_wait_is_forgotten)
{
    for (int i = 0; i < 2; i++) {
        struct lane *lane = stage_lane_of_three(batch, 1, "a");
        stage_finish(lane, 1, LANE_RELEASED);
        ck_assert(refusal_halve(&stage.queue, collect(false), refusal_blames, &cause, stage_now));
        ck_assert_ptr_nonnull(lane->refused);
        refusal_commit(&stage.queue, collect(false), stage_now);
        stage_now += SECOND_US;
        batch = stage_batch(&stage);
    }
}
END_TEST

START_TEST(dead_letter_that_cannot_be_made_waits)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 0, LANE_DEAD);
    struct settle_job *job = collect(false);
    ck_assert_uint_eq(job->settlement.buried_count, 1);
    ck_assert(refusal_halve(&stage.queue, job, refusal_blames, &cause, stage_now));
    job = collect(false);
    ck_assert_uint_eq(job->settlement.buried_count, 0);
    ck_assert_uint_eq(job->settlement.parked_count, 1);
    refusal_commit(&stage.queue, job, stage_now);
}
END_TEST

START_TEST(wait_that_cannot_be_written_is_kept_in_mind)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 0, LANE_RETRY);
    ck_assert(refusal_halve(&stage.queue, collect(false), refusal_blames, &cause, stage_now));
    struct settle_job *job = collect(false);
    ck_assert(settle_is_empty(job));
    refusal_commit(&stage.queue, job, stage_now);
    ck_assert_uint_eq(stage.queue.keys.destination_down.count, 1);
    ck_assert_uint_eq(batch->unsettled, 0);
}
END_TEST

START_TEST(lost_claim_writes_nothing_about_a_row_and_gives_it_back)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 3, LANE_DELIVERED);
    stage_lose(&stage);
    for (struct settle_job *job; (job = settle_collect(&stage.queue, stage.queue.holds.orphans, false));) {
        ck_assert_uint_eq(job->settlement.parked_count, 0);
        if (has(job, 2))
            refusal_halve(&stage.queue, job, refusal_blames, &cause, stage_now);
        else
            refusal_commit(&stage.queue, job, stage_now);
    }
    ck_assert_uint_eq(batch->unsettled, 0);
    ck_assert_int_eq(stage.noting.released.lo, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusal");
    TCase *tcase = tcase_create("refusal");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, one_row_is_found_among_many_and_waits_alone);
    tcase_add_test(tcase, last_attempt_closes_the_key_even_where_dead_letters_are_made);
    tcase_add_test(tcase, table_that_lets_nothing_go_is_waited_for);
    tcase_add_test(tcase, one_key_at_a_time_finds_out_whether_the_table_lets_others_go);
    tcase_add_test(tcase, settlement_sent_before_the_refusal_does_not_prove_that_the_table_accepts_rows);
    tcase_add_test(tcase, rows_that_were_gone_say_nothing_about_others);
    tcase_add_test(tcase, only_key_of_a_claim_is_blamed_at_once_and_the_next_one_is_not);
    tcase_add_test(tcase, only_key_of_a_claim_is_not_blamed_for_an_error_of_the_server_before_others_have_passed);
    tcase_add_test(tcase, row_that_was_blamed_is_blamed_again_when_its_wait_is_forgotten);
    tcase_add_test(tcase, dead_letter_that_cannot_be_made_waits);
    tcase_add_test(tcase, wait_that_cannot_be_written_is_kept_in_mind);
    tcase_add_test(tcase, lost_claim_writes_nothing_about_a_row_and_gives_it_back);
    return run_suite(suite);
}
