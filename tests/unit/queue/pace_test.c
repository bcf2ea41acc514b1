/* When the next claim comes, by what the last one has brought. */
#include "relay/queue/pace.h"

#include "relay/claim/claim_intake.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#define NOW (10 * SECOND_US)
#define MIN_US (2 * MS_US)
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
    stage.config.poll_min_us = MIN_US;
    stage.config.poll_max_us = 100 * MS_US;
    queue = &stage.queue;
    queue->outlet = &outlet;
    sink_config.max_in_flight = KEYS;
    queue->pace.idle_us = 50 * MS_US;
    queue->pace.poll_at = INSTANT_NEVER; /* a claim is under way */
    claim = &stage.claim;
    claim->round.keys = KEYS;
    queue->claiming.key_limit = KEYS;
    queue->pace.coming_at = NOW;
}

static void tear_down(void)
{
    stage_done(&stage);
}

static void expect(int64_t events)
{
    queue->pace.coming_milli = events * 1000;
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

START_TEST(few_events_are_claimed_again_after_the_shortest_wait)
{
    expect(148);
    find(2);
    ck_assert_int_eq(queue->pace.earliest_at, NOW); /* for other reasons than that it is time */
    ck_assert_int_gt(queue->pace.poll_at, NOW);
    ck_assert_int_le(queue->pace.poll_at, NOW + MIN_US);
}
END_TEST

START_TEST(next_claim_waits_longer_the_more_the_last_ones_have_found)
{
    expect(150);
    find(16);
    ck_assert_int_eq(queue->pace.earliest_at, NOW + 2 * MIN_US);
    ck_assert_int_eq(queue->pace.poll_at, queue->pace.earliest_at);
}
END_TEST

START_TEST(what_was_found_counts_less_the_longer_ago_it_was)
{
    expect(330);
    queue->pace.coming_at = NOW - 100 * MS_US;
    find(1);
    ck_assert_int_eq(queue->pace.earliest_at, NOW + 2 * MIN_US);
    queue->pace.coming_at = NOW - SECOND_US;
    find(1);
    ck_assert_int_eq(queue->pace.earliest_at, NOW);
}
END_TEST

START_TEST(what_follows_many_events_that_came_at_once_does_not_wait_for_as_many)
{
    expect(50);
    find(1000);
    ck_assert_int_eq(queue->pace.coming_milli, INT64_C(1000) * (50 + 50 + 64));
}
END_TEST

START_TEST(wait_has_its_limit)
{
    expect(350);
    find(50);
    ck_assert_int_eq(queue->pace.earliest_at, NOW + 25 * MIN_US);
    stage.config.poll_max_us = 3 * MIN_US;
    find(1);
    ck_assert_int_eq(queue->pace.earliest_at, NOW + 3 * MIN_US);
}
END_TEST

START_TEST(no_claim_waits_for_more_than_it_may_take)
{
    expect(1000);
    find(24);
    ck_assert_int_eq(queue->pace.earliest_at, NOW + 25 * MS_US); /* 256 of 1,024 in 100 ms */
    queue->claiming.key_limit = KEYS / 2;
    expect(1000);
    find(24);
    ck_assert_int_eq(queue->pace.earliest_at, NOW + 25 * MS_US / 2);
    stage.config.keys_per_claim = KEYS / 2;
    queue->claiming.lean = true;
    expect(1000);
    find(24);
    ck_assert_int_eq(queue->pace.earliest_at, NOW + 25 * MS_US); /* it may take twice as many */
}
END_TEST

/* The figures of docs/producers.md and docs/tried-and-lost.md. */
static const struct {
    size_t events_per_ms;
    int64_t wait_ms;
    bool leases;
} steady[] = {{1, 0, false}, {2, 25, false}, {3, 50, false}, {10, 20, false},
              {1, 0, true},  {2, 74, true},  {3, 55, true},  {10, 20, true}};

/* Also when there is a claim every half millisecond until then, for other reasons than that it is time. */
START_TEST(steady_load_is_waited_for_as_long_as_the_documentation_says)
{
    int64_t wait_us = 0;
    instant_us now = NOW;
    size_t found = 0;
    queue->leases.used = steady[_i].leases;
    expect(0);
    for (int i = 0; i < 600; i++) {
        now += wait_us + MS_US / 2;
        size_t come = (size_t)(now - NOW) * steady[_i].events_per_ms / MS_US;
        find_at(come - found, now);
        found = come;
        wait_us = queue->pace.earliest_at - now;
    }
    ck_assert_int_ge(wait_us, (steady[_i].wait_ms - 2) * MS_US);
    ck_assert_int_le(wait_us, (steady[_i].wait_ms + 2) * MS_US);
}
END_TEST

START_TEST(what_is_claimed_as_there_is_room_waits_for_no_more_than_that)
{
    static struct ordering_type keyless;
    keyless = *queue->ordering->type;
    keyless.keyless = true;
    queue->leases.used = _i == 1;
    if (_i == 2)
        queue->ordering->type = &keyless;
    sink_config.max_in_flight = KEYS / 2;
    expect(1000);
    find(24);
    ck_assert_int_eq(queue->pace.earliest_at, NOW + 25 * MS_US / (_i ? 2 : 1));
}
END_TEST

START_TEST(where_nothing_has_come_nothing_is_expected)
{
    expect(1000);
    find(0);
    ck_assert_int_eq(queue->pace.earliest_at, NOW);
}
END_TEST

START_TEST(claim_that_found_nothing_is_waited_for_ever_longer)
{
    find(0);
    ck_assert_int_eq(queue->pace.earliest_at, NOW);
    ck_assert_int_eq(queue->pace.idle_us, 100 * MS_US);
    find(0);
    ck_assert_int_eq(queue->pace.idle_us, 100 * MS_US);
    ck_assert_uint_eq(queue->metrics.empty_claims, 2);
    find(1);
    ck_assert_int_eq(queue->pace.idle_us, MIN_US);
}
END_TEST

START_TEST(what_has_woken_the_queue_since_the_claim_was_sent_is_not_forgotten)
{
    queue->pace.poll_at = NOW - MS_US;
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
    expect(162);
    batch = stage_batch(&stage);
    for (int64_t id = 1; id <= 12; id++)
        stage_event(batch, id, "a")->lane->more = _i == EVENTS_OF_A_KEY;
    bring(NOW);
    ck_assert_int_eq(queue->pace.earliest_at, _i == LEFT ? NOW + 3 * MIN_US : NOW);
    expect(174);
    queue->pace.earliest_at = NOW;
    pace_sent(queue, false, KEYS, NOW);
    ck_assert_int_eq(queue->pace.earliest_at, _i == LEFT ? NOW + 3 * MIN_US : NOW); /* nor is there another beside it */
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
    ck_assert_int_eq(queue->pace.earliest_at, NOW); /* it took longer than that: as without a rate */
    find(0);
    ck_assert_int_eq(queue->pace.earliest_at, NOW);
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
    expect(164);
    find(10);
    bool more = _i == NEWEST || _i == OLDEST || _i == OTHERS;
    ck_assert_int_eq(queue->pace.earliest_at, more ? NOW : NOW + 3 * MIN_US);
}
END_TEST

static void add_tests(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, few_events_are_claimed_again_after_the_shortest_wait);
    tcase_add_test(tcase, next_claim_waits_longer_the_more_the_last_ones_have_found);
    tcase_add_test(tcase, what_was_found_counts_less_the_longer_ago_it_was);
    tcase_add_test(tcase, what_follows_many_events_that_came_at_once_does_not_wait_for_as_many);
    tcase_add_test(tcase, wait_has_its_limit);
    tcase_add_test(tcase, no_claim_waits_for_more_than_it_may_take);
    tcase_add_loop_test(tcase, steady_load_is_waited_for_as_long_as_the_documentation_says, 0,
                        (int)(sizeof steady / sizeof steady[0]));
    tcase_add_loop_test(tcase, what_is_claimed_as_there_is_room_waits_for_no_more_than_that, 0, 3);
    tcase_add_test(tcase, where_nothing_has_come_nothing_is_expected);
    tcase_add_test(tcase, claim_that_found_nothing_is_waited_for_ever_longer);
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
