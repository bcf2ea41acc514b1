/* When a queue has nothing under way, and when a claim that is finished has to wait all the same. */
#include "relay/queue/queue.h"

#include "relay/claim/claim.h"
#include "relay/relay_end.h"
#include "relay/settle/settle.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"
#include "tests/unit/stage/scripted_db.h"

#define NOW (10 * SECOND_US)

static struct stage stage;
static struct queue *queue;
static struct claim *claim;

static void set_up(void)
{
    stage_init(&stage, "there");
    queue = &stage.queue;
    claim = &stage.claim;
    claim->state = CLAIM_IDLE;
    script_reset();
}

static void tear_down(void)
{
    stage_done(&stage);
}

static bool is_quiet(void)
{
    struct ending ending = {.queues = &queue, .queue_count = 1};
    return relay_end_is_quiet(&ending);
}

static bool is_idle(void)
{
    struct ending ending = {.queues = &queue, .queue_count = 1, .idle_max_us = 1};
    int64_t idle_us;
    return relay_end_idle(&ending, NOW, &idle_us);
}

START_TEST(queue_is_quiet_when_nothing_is_claimed_or_settled)
{
    ck_assert(is_quiet());
    queue->side_status.settling = true;
    ck_assert(!is_quiet());
    queue->side_status.settling = false;
    claim->state = CLAIM_BUSY;
    ck_assert(!is_quiet());
    claim->state = CLAIM_ROLLBACK;
    claim->in_transaction = true; /* its locks are still to be given back */
    ck_assert(!is_quiet());
    claim->in_transaction = false;
    ck_assert(is_quiet());
    stage_batch(&stage);
    ck_assert(!is_quiet()); /* arrived */
    queue->arrived = NULL;
    ck_assert(!is_quiet()); /* held */
    stage_lose(&stage);
    ck_assert(!is_quiet()); /* an orphan */
}
END_TEST

START_TEST(queue_is_idle_when_it_asks_for_events_in_vain)
{
    struct outlet outlet = {0};
    struct route_circuit route = {0};
    queue->outlet = &outlet;
    queue->side_status.connected = true;
    queue->side_requests.probe_answered = queue->window.known = true;
    ck_assert(is_idle());
    queue->side_status.connected = false; /* it cannot ask */
    ck_assert(!is_idle());
    queue->side_status.connected = true;
    queue->side_requests.probe_answered = false; /* it must not ask yet */
    ck_assert(!is_idle());
    queue->side_requests.probe_answered = true;
    queue->window.known = false;
    ck_assert(!is_idle());
    queue->window.known = true;
    claim->state = CLAIM_BUSY; /* it asks */
    ck_assert(is_idle());
    claim->state = CLAIM_OFF;
    ck_assert(!is_idle());
    claim->state = CLAIM_IDLE;
    claim->failures = 1; /* it gets no answer */
    ck_assert(!is_idle());
    claim->failures = 0;
    outlet.circuit.state = CIRCUIT_OPEN; /* it does not ask */
    ck_assert(!is_idle());
    outlet.circuit.state = CIRCUIT_CLOSED;
    outlet.routes.first = &route;
    ck_assert(!is_idle());
    outlet.routes.first = NULL;
    stage_batch(&stage);
    ck_assert(!is_idle()); /* arrived */
    queue->arrived = NULL;
    ck_assert(!is_idle()); /* held */
    stage_lose(&stage);
    ck_assert(!is_idle()); /* an orphan */
}
END_TEST

START_TEST(finished_claim_waits_for_its_connection)
{
    struct batch *batch = stage_batch(&stage);
    queue->arrived = NULL;
    batch_add_ended_wait(batch, span_of("a"), 1);
    script.idle = false; /* it was given up, and DB_DOWN is still to come */
    claim_settle_resolved(queue, NOW);
    claim->state = CLAIM_BUSY;
    script.idle = true;
    claim_settle_resolved(queue, NOW);
    ck_assert_uint_eq(script.sends, 0);
    ck_assert_int_eq(batch->lanes->state, LANE_FINISHED);
}
END_TEST

START_TEST(no_queue_can_be_closed)
{
    queue_close(NULL);
    db_free(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("queue");
    TCase *tcase = tcase_create("queue");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, queue_is_quiet_when_nothing_is_claimed_or_settled);
    tcase_add_test(tcase, queue_is_idle_when_it_asks_for_events_in_vain);
    tcase_add_test(tcase, finished_claim_waits_for_its_connection);
    tcase_add_test(tcase, no_queue_can_be_closed);
    return run_suite(suite);
}
