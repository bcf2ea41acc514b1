/* When an idle queue asks whether there is anything before it claims. */
#include "relay/claim/peek.h"

#include "relay/queue/pace.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#define NOW (10 * SECOND_US)
#define POLL_US (100 * MS_US)

static struct stage stage;
static struct queue *queue;
static bool more, unswept;

static bool is_pending(const struct ordering *o, instant_us now)
{
    (void)o;
    (void)now;
    return more;
}

static bool is_sweep_due(const struct ordering *o, instant_us now)
{
    (void)o;
    (void)now;
    return unswept;
}

static const struct ordering_type pending = {
    .pending = is_pending, .sweep_due = is_sweep_due, .released = note_released};

/* The last claim was a moment ago and found nothing. */
static void set_up(void)
{
    stage_init(&stage, "there");
    stage.noting.ordering.type = &pending;
    stage.config.latency_us = 2 * MS_US;
    stage.config.poll_max_us = POLL_US;
    queue = &stage.queue;
    queue->pace.idle_us = POLL_US;
    queue->pace.poll_at = NOW;
    queue->pace.claim_by = NOW + 1;
    queue->side_status.connected = true;
    more = unswept = false;
}

static void tear_down(void)
{
    stage_done(&stage);
}

START_TEST(idle_queue_asks_first_and_again_after_its_wait)
{
    ck_assert(peek_first(queue, NOW));
    ck_assert(queue->side_requests.peek);
    ck_assert_int_gt(queue->pace.poll_at, NOW + POLL_US / 2);
    ck_assert_int_le(queue->pace.poll_at, NOW + POLL_US);
    instant_us poll_at = queue->pace.poll_at;
    pace_peeked(queue, false, NOW + 1);
    ck_assert_int_eq(queue->pace.poll_at, poll_at);
    ck_assert_int_eq(queue->pace.idle_us, POLL_US);
}
END_TEST

START_TEST(news_are_claimed_at_once)
{
    ck_assert(peek_first(queue, NOW));
    pace_peeked(queue, true, NOW + 1);
    ck_assert_int_eq(queue->pace.poll_at, NOW + 1);
    ck_assert(!peek_first(queue, NOW + 1));
}
END_TEST

enum reason {
    BEFORE_ITS_TIME,
    WORK_IS_KNOWN,
    MORE_TO_LOOK_AT,
    KEYS_TO_FOLLOW,
    NOT_YET_EVERYWHERE,
    SWEEP_DUE,
    NOBODY_TO_ASK,
    REASONS
};

static void give(enum reason reason)
{
    switch (reason) {
    case BEFORE_ITS_TIME:
        queue->pace.poll_at = NOW + 1; /* a claim for another reason */
        break;
    case WORK_IS_KNOWN:
        queue->pace.work_known = true;
        break;
    case MORE_TO_LOOK_AT:
        more = true;
        break;
    case KEYS_TO_FOLLOW:
        ck_assert(keyset_put(&queue->keys.more, span_of("k"), 1, NOW, NULL));
        break;
    case NOT_YET_EVERYWHERE:
        unswept = true;
        break;
    case SWEEP_DUE:
        queue->pace.claim_by = NOW;
        break;
    case NOBODY_TO_ASK:
        queue->side_status.connected = false;
        break;
    case REASONS:
        break;
    }
}

START_TEST(whoever_has_reason_claims_without_asking)
{
    give((enum reason)_i);
    ck_assert(!peek_first(queue, NOW));
    ck_assert(!queue->side_requests.peek);
    ck_assert_int_eq(queue->pace.claim_by, NOW + SECOND_US); /* what a claim looks at besides has been looked at */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("peek");
    TCase *tcase = tcase_create("peek");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, idle_queue_asks_first_and_again_after_its_wait);
    tcase_add_test(tcase, news_are_claimed_at_once);
    tcase_add_loop_test(tcase, whoever_has_reason_claims_without_asking, 0, REASONS);
    return run_suite(suite);
}
