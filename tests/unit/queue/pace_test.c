/* When the next claim comes, by what the last one has brought. */
#include "relay/queue/pace.h"

#include "relay/claim/claim_intake.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#define NOW (10 * SECOND_US)
#define LATENCY (2 * MS_US)
#define BETWEEN_US (LATENCY * 7 / 5)
#define KEYS 256

static struct stage stage;
static struct sink_config sink_config;
static struct sink sink;
static struct outlet outlet = {.sink = &sink, .config = &sink_config};
static struct queue *queue;
static struct claim *claim;
static struct batch *batch;

static void set_up(void)
{
    stage_init(&stage, "there");
    stage.claim.plan.scan = (struct scan_plan){.newest = {1, 0}, .oldest = {1, 0}};
    stage.claim.plan.report = (struct scan_report){.newest_left = {1, 0}, .oldest_left = {1, 0}, .missed = {1, 0}};
    stage.config.latency_us = LATENCY;
    stage.config.poll_max_us = 100 * MS_US;
    queue = &stage.queue;
    queue->outlet = &outlet;
    sink_config.max_in_flight = KEYS;
    queue->pace.idle_us = 50 * MS_US;
    queue->pace.poll_at = INSTANT_NEVER; /* a claim is under way */
    claim = &stage.claim;
    claim->sent_at = NOW;
    claim->round.keys = KEYS;
    queue->claiming.key_limit = KEYS;
}

static void tear_down(void)
{
    stage_done(&stage);
}

static void bring(instant_us now)
{
    pace_claimed(queue, claim_intake_pace(claim, batch), now);
}

/* Another claim, with as many events. */
static void find_at(size_t events, instant_us now)
{
    batch = stage_batch(&stage);
    if (events > 0)
        stage_event(batch, 1, "a");
    batch->event_count = events;
    bring(now);
}

static void find(size_t events)
{
    find_at(events, NOW);
}

START_TEST(next_claim_is_sent_when_its_time_has_passed_since_the_last_one_was)
{
    claim->sent_at = NOW - MS_US;
    find(_i == 0 ? 1 : 1000);
    ck_assert_int_eq(queue->pace.earliest_at, NOW - MS_US + BETWEEN_US);
    ck_assert_int_eq(queue->pace.poll_at, queue->pace.earliest_at);
}
END_TEST

START_TEST(claim_that_took_long_is_followed_at_once)
{
    claim->sent_at = NOW - SECOND_US;
    find(1);
    ck_assert_int_le(queue->pace.earliest_at, NOW);
    ck_assert_int_le(queue->pace.poll_at, NOW);
}
END_TEST

START_TEST(claim_that_found_nothing_holds_up_no_notification)
{
    claim->sent_at = NOW;
    find(0);
    ck_assert_int_eq(queue->pace.earliest_at, NOW + BETWEEN_US); /* but for what is to be looked at again */
    pace_wake(queue, NOW);
    ck_assert_int_eq(queue->pace.earliest_at, NOW);
    find(1);
    pace_wake(queue, NOW);
    ck_assert_int_eq(queue->pace.earliest_at, NOW + BETWEEN_US);
}
END_TEST

START_TEST(claim_that_found_nothing_is_waited_for_ever_longer)
{
    find(0);
    ck_assert_int_eq(queue->pace.idle_us, 100 * MS_US);
    find(0);
    ck_assert_int_eq(queue->pace.idle_us, 100 * MS_US);
    ck_assert_uint_eq(queue->metrics.empty_claims, 2);
    find(1);
    ck_assert_int_eq(queue->pace.idle_us, LATENCY);
}
END_TEST

START_TEST(looks_are_as_near_as_claims_until_nothing_has_come_for_a_while)
{
    const instant_us often_us = 60 * MS_US;
    find(1);
    find(0);
    ck_assert_int_eq(queue->pace.idle_us, BETWEEN_US);
    pace_rest(queue, NOW + often_us - 1);
    ck_assert_int_eq(queue->pace.idle_us, BETWEEN_US);
    pace_rest(queue, NOW + often_us);
    ck_assert_int_eq(queue->pace.idle_us, 2 * BETWEEN_US);
    stage.config.poll_max_us = LATENCY;
    find(1);
    find(0);
    ck_assert_int_eq(queue->pace.idle_us, LATENCY);
}
END_TEST

START_TEST(what_has_woken_the_queue_since_the_claim_was_sent_is_not_forgotten)
{
    queue->pace.poll_at = NOW - MS_US;
    claim->sent_at = NOW - BETWEEN_US;
    find(0);
    ck_assert_int_le(queue->pace.poll_at, NOW);
}
END_TEST

enum left { LOCKS_FOR_NO_MORE, FEWER_KEYS_THAN_ROWS, EVENTS_OF_A_LOCKED_KEY, EVENTS_OF_A_KEY, LEFT };

START_TEST(claim_that_left_something_is_followed_at_once)
{
    claim->plan.locked = _i == LOCKS_FOR_NO_MORE ? KEYS : KEYS - 1;
    claim->plan.thin = _i == FEWER_KEYS_THAN_ROWS;
    claim->plan.truncated = _i == EVENTS_OF_A_LOCKED_KEY;
    batch = stage_batch(&stage);
    for (int64_t id = 1; id <= 12; id++)
        stage_event(batch, id, "a")->lane->more = _i == EVENTS_OF_A_KEY;
    bring(NOW);
    ck_assert_int_eq(queue->pace.earliest_at, _i == LEFT ? NOW + BETWEEN_US : NOW);
    queue->pace.earliest_at = NOW;
    pace_sent(queue, false, NOW);
    ck_assert_int_eq(queue->pace.earliest_at, _i == LEFT ? NOW + BETWEEN_US : NOW); /* nor is there another beside it */
}
END_TEST

START_TEST(claim_whose_session_takes_no_new_keys_says_nothing_of_the_queue)
{
    claim->full = true;
    queue->pace.poll_at = NOW + SECOND_US;
    find(4);
    ck_assert_int_eq(queue->pace.poll_at, NOW + SECOND_US);
}
END_TEST

START_TEST(what_a_claim_brings_has_its_time_where_there_is_a_rate)
{
    stage.config.rate = 100;
    claim->sent_at = NOW - MS_US;
    find(5);
    ck_assert_int_eq(queue->pace.earliest_at, NOW + 49 * MS_US); /* from when it was sent */
    ck_assert_int_eq(queue->pace.poll_at, queue->pace.earliest_at);
    claim->sent_at = NOW - SECOND_US;
    find(5);
    ck_assert_int_le(queue->pace.earliest_at, NOW); /* it took longer than that: as without a rate */
    find(0);
    ck_assert_int_le(queue->pace.earliest_at, NOW);
}
END_TEST

enum stretch { NEWEST, OLDEST, OTHERS, SWEPT, NONE, STRETCHES };

START_TEST(stretch_of_ids_says_nothing_of_what_was_to_be_looked_at_besides)
{
    const struct id_range some = {1, 5}, none = {1, 0};
    struct claim_plan *plan = &claim->plan;
    plan->scan.sweeping = _i == SWEPT;
    plan->scan.more = _i == OTHERS;
    plan->report.newest_left = _i == NEWEST ? some : none;
    plan->report.oldest_left = _i == OLDEST || _i == SWEPT ? some : none;
    find(10);
    bool more = _i == NEWEST || _i == OLDEST || _i == OTHERS;
    ck_assert_int_eq(queue->pace.earliest_at, more ? NOW : NOW + BETWEEN_US);
}
END_TEST

static void add_tests(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, next_claim_is_sent_when_its_time_has_passed_since_the_last_one_was, 0, 2);
    tcase_add_test(tcase, claim_that_took_long_is_followed_at_once);
    tcase_add_test(tcase, claim_that_found_nothing_holds_up_no_notification);
    tcase_add_test(tcase, claim_that_found_nothing_is_waited_for_ever_longer);
    tcase_add_test(tcase, looks_are_as_near_as_claims_until_nothing_has_come_for_a_while);
    tcase_add_test(tcase, what_has_woken_the_queue_since_the_claim_was_sent_is_not_forgotten);
    tcase_add_loop_test(tcase, claim_that_left_something_is_followed_at_once, 0, LEFT + 1);
    tcase_add_loop_test(tcase, stretch_of_ids_says_nothing_of_what_was_to_be_looked_at_besides, 0, STRETCHES);
    tcase_add_test(tcase, claim_whose_session_takes_no_new_keys_says_nothing_of_the_queue);
    tcase_add_test(tcase, what_a_claim_brings_has_its_time_where_there_is_a_rate);
}

int main(void)
{
    Suite *suite = suite_create("pace");
    TCase *tcase = tcase_create("pace");
    suite_add_tcase(suite, tcase);
    add_tests(tcase);
    return run_suite(suite);
}
