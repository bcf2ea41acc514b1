/* What keeps a claim waiting: the reason, the instant, the number of keys and the loop's deadline are one answer. */
#include "relay/claim/claim_wait.h"

#include "relay/queue/pace.h"
#include "relay/side/unreadable_search.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/claim_stage.h"

#define LATER (NOW + 10 * MS_US)

static struct claim two[2];
static struct batch finished = {.finished = 1};
static struct unreadable_search search;
static struct ordering_type keyless;

/* Another connection beside that which claims. */
static void set_up_two(void)
{
    set_up();
    keyless = one;
    keyless.keyless = true;
    two[0] = *claim;
    two[1] = (struct claim){.queue = &stage.queue, .index = 1, .state = CLAIM_OFF};
    stage_claims(&stage, two, 2);
    claim = &two[0];
    stage.queue.pace.poll_at = NOW;
}

static void tear_down_two(void)
{
    stage.queue.holds.orphans = NULL;
    stage.queue.unreadable.search = NULL;
    outlet.circuit = (struct circuit){.state = CIRCUIT_CLOSED};
    stage_free_batches(&two[1].batches);
    tear_down();
}

static void other_claims(void)
{
    two[1].state = CLAIM_BUSY;
    two[1].round.claim = true;
    two[1].sent_at = NOW - 90 * MS_US;
}

/* Something that keeps the claim from being sent before LATER, or, where no time ends that, for now. */
static void keep_waiting(enum claim_reason reason)
{
    struct queue *queue = &stage.queue;
    switch (reason) {
    case CLAIM_WAITS_FOR_END:
        queue->stopping = true;
        break;
    case CLAIM_WAITS_FOR_RELAY:
        queue->pause.refused = true;
        break;
    case CLAIM_WAITS_FOR_RESUME:
        queue->pause.on = true;
        break;
    case CLAIM_WAITS_FOR_WINDOW:
        queue->window.closed = true;
        break;
    case CLAIM_WAITS_FOR_PROBE:
        queue->side_requests.probe_answered = false;
        break;
    case CLAIM_WAITS_FOR_RETRY:
        claim->retry_at = LATER;
        break;
    case CLAIM_WAITS_FOR_PACE:
        queue->pace.earliest_at = LATER;
        break;
    case CLAIM_WAITS_FOR_DESTINATION:
        queue->wasted_until = LATER + 50 * MS_US;
        break;
    case CLAIM_WAITS_FOR_SETTLEMENT:
        queue->holds.orphans = &finished;
        queue->refusal.all_refused_since = NOW;
        queue->refusal.test_claim_at = LATER;
        break;
    case CLAIM_WAITS_FOR_SEARCH:
        queue->unreadable.search = &search;
        queue->unreadable.held_until = LATER;
        break;
    case CLAIM_WAITS_FOR_TURN:
        queue->ahead.slow = true;
        other_claims();
        break;
    case CLAIM_WAITS_FOR_EVENTS:
        queue->pace.poll_at = INSTANT_NEVER;
        pending_at = LATER;
        break;
    case CLAIM_WAITS_FOR_SINK:
        outlet.circuit = (struct circuit){.state = CIRCUIT_OPEN, .retry_at = LATER};
        break;
    case CLAIM_WAITS_FOR_ROOM:
        stage.noting.ordering.type = &keyless;
        sink.in_flight = 99;
        claim->sent_at = LATER - 5 * MS_US;
        break;
    case CLAIM_WAITS_FOR_NOTHING:
    case CLAIM_REASONS:
        break;
    }
}

static instant_us deadline(instant_us now)
{
    struct pollset *ps = pollset_new();
    claim_prepare(&stage.queue, ps, now);
    instant_us at = pollset_next_deadline(ps);
    pollset_free(ps);
    return at;
}

START_TEST(claim_that_waits_for_nothing_is_sent)
{
    struct claim_wait wait = claim_wait(claim, NOW);
    ck_assert_int_eq(wait.reason, CLAIM_WAITS_FOR_NOTHING);
    ck_assert_int_eq(wait.until, 0);
    ck_assert_int_eq(wait.keys, KEYS);
    claim_ready(&stage.queue, NULL, NOW);
    ck_assert_uint_gt(script.sends, 0);
}
END_TEST

/* The side connection answers after the claims' step of a turn: nothing else would bring the next turn. */
START_TEST(reason_to_claim_that_came_after_the_claims_step_wakes_the_loop_at_once)
{
    stage.queue.pace.poll_at = INSTANT_NEVER;
    ck_assert_int_eq(deadline(NOW), INSTANT_NEVER);
    pace_peeked(&stage.queue, true, NOW);
    ck_assert_int_eq(deadline(NOW), NOW + 1);
    claim_ready(&stage.queue, NULL, NOW + 1);
    ck_assert_uint_gt(script.sends, 0);
}
END_TEST

START_TEST(claim_that_waits_says_for_what_and_the_loop_wakes_then)
{
    enum claim_reason reason = (enum claim_reason)_i;
    keep_waiting(reason);
    struct claim_wait wait = claim_wait(claim, NOW);
    ck_assert_int_eq(wait.reason, reason);
    ck_assert_int_gt(wait.until, NOW);
    ck_assert_int_eq(wait.keys, 0);
    claim_ready(&stage.queue, NULL, NOW);
    ck_assert_uint_eq(script.sends, 0);
    ck_assert_int_eq(deadline(NOW), wait.until);
    ck_assert_uint_gt(strlen(claim_waits_for(reason)), 0);
    if (wait.until == INSTANT_NEVER || reason == CLAIM_WAITS_FOR_SINK) /* that is asked first */
        return;
    ck_assert_int_eq(wait.until, LATER);
    claim_ready(&stage.queue, NULL, LATER - 1);
    ck_assert_uint_eq(script.sends, 0);
    claim_ready(&stage.queue, NULL, LATER);
    ck_assert_uint_gt(script.sends, 0);
}
END_TEST

/* So many reasons, and one wait: nobody wakes for those that end before the last. */
START_TEST(of_several_reasons_the_last_one_to_end_counts)
{
    keep_waiting(CLAIM_WAITS_FOR_PACE);
    claim->retry_at = LATER + 1;
    keep_waiting(CLAIM_WAITS_FOR_DESTINATION);
    ck_assert_int_eq(claim_wait(claim, NOW).reason, CLAIM_WAITS_FOR_RETRY);
    ck_assert_int_eq(deadline(NOW), LATER + 1);
    keep_waiting(CLAIM_WAITS_FOR_PROBE);
    ck_assert_int_eq(claim_wait(claim, NOW).reason, CLAIM_WAITS_FOR_PROBE);
    ck_assert_int_eq(deadline(NOW), INSTANT_NEVER);
}
END_TEST

/* The first of the reasons to claim is enough. */
START_TEST(first_reason_to_claim_ends_the_wait_for_events)
{
    stage.queue.pace.poll_at = LATER + 1;
    pending_at = LATER;
    ck_assert_int_eq(claim_wait(claim, NOW).until, LATER);
    ck_assert(keyset_put(&stage.queue.keys.more, span_of("k"), 1, NOW, NULL));
    ck_assert_int_eq(claim_wait(claim, NOW).keys, KEYS);
}
END_TEST

/* What it needs is an answer, and that wakes the loop itself. */
START_TEST(claim_under_way_waits_for_no_instant)
{
    keep_waiting(CLAIM_WAITS_FOR_PACE);
    claim->state = CLAIM_BUSY;
    ck_assert_int_eq(deadline(NOW), INSTANT_NEVER);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("claim_wait");
    TCase *tcase = tcase_create("claim_wait");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up_two, tear_down_two);
    tcase_add_test(tcase, claim_that_waits_for_nothing_is_sent);
    tcase_add_test(tcase, reason_to_claim_that_came_after_the_claims_step_wakes_the_loop_at_once);
    tcase_add_loop_test(tcase, claim_that_waits_says_for_what_and_the_loop_wakes_then, CLAIM_WAITS_FOR_NOTHING + 1,
                        CLAIM_REASONS);
    tcase_add_test(tcase, of_several_reasons_the_last_one_to_end_counts);
    tcase_add_test(tcase, first_reason_to_claim_ends_the_wait_for_events);
    tcase_add_test(tcase, claim_under_way_waits_for_no_instant);
    return run_suite(suite);
}
