/* When a relay ends by itself. */
#include "relay/relay_end.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#define NOW (10 * SECOND_US)

static struct stage stages[2];
static struct queue *queues[2], *queue;
static struct outlet outlet;
static struct ending ending;
static bool pending; /* claims have not looked everywhere yet */

static bool is_pending(const struct ordering *o, instant_us now)
{
    (void)o;
    (void)now;
    return pending;
}

static const struct ordering_type looking = {.pending = is_pending};

/* Two queues whose connections are up, and nothing is known of them but that they are not paused and have no window. */
static void set_up(void)
{
    outlet = (struct outlet){0};
    for (size_t i = 0; i < 2; i++) {
        stage_init(&stages[i], "there");
        queues[i] = &stages[i].queue;
        queues[i]->outlet = &outlet;
        stages[i].noting.ordering.type = &looking;
        queues[i]->side_status.connected = true;
        queues[i]->side_requests.probe_answered = queues[i]->window.known = true;
        queues[i]->claims[0].state = CLAIM_IDLE;
    }
    queue = queues[0];
    pending = false;
    ending = (struct ending){.queues = queues, .queue_count = 2, .until_empty = true, .idle_max_us = SECOND_US};
    relay_end_begin(&ending, NOW);
}

static void tear_down(void)
{
    stage_done(&stages[0]);
    stage_done(&stages[1]);
}

START_TEST(relay_that_is_to_stay_asks_nothing)
{
    ending.until_empty = false;
    queues[0]->side_requests.found_empty = queues[1]->side_requests.found_empty = true;
    ck_assert(!relay_end_empty(&ending, NOW));
    ck_assert(!queue->side_requests.check_empty);
    ck_assert_int_eq(relay_end_check_at(&ending), INSTANT_NEVER);
}
END_TEST

START_TEST(tables_are_asked_ever_later_until_all_are_empty)
{
    for (int64_t wait_ms = 4, at = NOW; wait_ms <= 64; at += wait_ms * MS_US, wait_ms *= 2) {
        queue->side_requests.check_empty = false;
        ck_assert_int_eq(relay_end_check_at(&ending), at);
        ck_assert(!relay_end_empty(&ending, at));
        ck_assert(queue->side_requests.check_empty && queues[1]->side_requests.check_empty);
        ck_assert_int_eq(relay_end_check_at(&ending), at + wait_ms * MS_US);
        queue->side_requests.check_empty = false;
        ck_assert(!relay_end_empty(&ending, at + wait_ms * MS_US - 1));
        ck_assert(!queue->side_requests.check_empty);
    }
    queues[0]->side_requests.found_empty = true;
    ck_assert(!relay_end_empty(&ending, NOW));
    queues[1]->side_requests.found_empty = true;
    ck_assert(relay_end_empty(&ending, NOW));
}
END_TEST

START_TEST(table_is_not_asked_while_claims_look_on)
{
    pending = true;
    queues[0]->side_requests.probe_answered_at = queues[1]->side_requests.probe_answered_at = NOW;
    ck_assert(!relay_end_empty(&ending, NOW)); /* they have not begun */
    ck_assert(!queue->side_requests.check_empty);
    ck_assert(!relay_end_empty(&ending, NOW + SECOND_US - 1));
    ck_assert(!queue->side_requests.check_empty);
    queue->claims[0].sent_at = NOW + SECOND_US / 2;
    ck_assert(!relay_end_empty(&ending, NOW + 5 * SECOND_US / 4));
    ck_assert(!queue->side_requests.check_empty && queues[1]->side_requests.check_empty);
    ck_assert(!relay_end_empty(&ending, NOW + 2 * SECOND_US)); /* they were stopped: it is asked all the same */
    ck_assert(queue->side_requests.check_empty);
}
END_TEST

START_TEST(answers_are_forgotten_when_something_is_claimed)
{
    ck_assert(!relay_end_empty(&ending, NOW));
    queues[0]->side_requests.found_empty = queues[1]->side_requests.found_empty = true;
    queue->claims[0].state = CLAIM_BUSY;
    ck_assert(!relay_end_empty(&ending, NOW));
    ck_assert(!queues[0]->side_requests.found_empty && queues[1]->side_requests.answer_outdated);
    ck_assert_int_eq(relay_end_check_at(&ending), INSTANT_NEVER);
    queue->claims[0].state = CLAIM_IDLE;
    ck_assert(!relay_end_empty(&ending, NOW + SECOND_US));
    ck_assert_int_eq(relay_end_check_at(&ending), NOW + SECOND_US + 4 * MS_US);
}
END_TEST

START_TEST(queue_that_is_paused_or_outside_of_its_window_has_nothing)
{
    queues[0]->pause.on = true;
    queues[1]->window.closed = true;
    ck_assert(relay_end_empty(&ending, NOW));
}
END_TEST

START_TEST(queue_that_another_relay_keeps_from_this_one_may_have_something)
{
    queues[0]->pause.on = queues[0]->pause.refused = true;
    queues[1]->side_requests.found_empty = true;
    ck_assert(!relay_end_empty(&ending, NOW));
    queues[0]->pause.refused = false;
    ck_assert(relay_end_empty(&ending, NOW + SECOND_US));
}
END_TEST

START_TEST(window_that_nobody_has_looked_at_is_not_closed)
{
    queue->window.closed = true;
    queue->window.known = false;
    queues[1]->side_requests.found_empty = true;
    ck_assert(!relay_end_empty(&ending, NOW));
    queue->window.known = true;
    ck_assert(relay_end_empty(&ending, NOW));
}
END_TEST

START_TEST(relay_is_idle_when_all_its_queues_were_for_so_long)
{
    int64_t idle_us = 0;
    ck_assert(!relay_end_idle(&ending, NOW + SECOND_US - 1, &idle_us));
    ck_assert(relay_end_idle(&ending, NOW + SECOND_US, &idle_us));
    ck_assert_int_eq(idle_us, SECOND_US);
    queues[1]->claims[0].state = CLAIM_OFF;
    ck_assert(!relay_end_idle(&ending, NOW + SECOND_US, &idle_us));
    queues[1]->claims[0].state = CLAIM_IDLE;
    ck_assert(!relay_end_idle(&ending, NOW + 2 * SECOND_US - 1, &idle_us));
    ck_assert(relay_end_idle(&ending, NOW + 2 * SECOND_US, &idle_us));
    ending.idle_max_us = 0;
    ck_assert(!relay_end_idle(&ending, NOW + HOUR_US, &idle_us));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("relay_end");
    TCase *tcase = tcase_create("relay_end");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, relay_that_is_to_stay_asks_nothing);
    tcase_add_test(tcase, tables_are_asked_ever_later_until_all_are_empty);
    tcase_add_test(tcase, table_is_not_asked_while_claims_look_on);
    tcase_add_test(tcase, answers_are_forgotten_when_something_is_claimed);
    tcase_add_test(tcase, queue_that_is_paused_or_outside_of_its_window_has_nothing);
    tcase_add_test(tcase, queue_that_another_relay_keeps_from_this_one_may_have_something);
    tcase_add_test(tcase, window_that_nobody_has_looked_at_is_not_closed);
    tcase_add_test(tcase, relay_is_idle_when_all_its_queues_were_for_so_long);
    return run_suite(suite);
}
