/* The engine against a sink that follows a script. */
#include "relay/deliver.h"

#include "tests/unit/hand_made.h"

#include <stdlib.h>

#define TAKEN_MAX 64

struct fake {
    struct sink sink;
    struct delivery *taken[TAKEN_MAX];
    size_t taken_count;
    int64_t sent[TAKEN_MAX]; /* ids in the order of their submission */
    size_t sent_count;
    size_t room; /* what one submit() may take */
    enum reach reach;
    struct {
        struct delivery *d;
        enum verdict verdict;
        enum error_kind kind;
        int64_t retry_after_us;
    } script[TAKEN_MAX];
    size_t script_count;
};

static struct sink *fake_open(const char *name, const void *settings, struct error *err)
{
    (void)name;
    (void)settings;
    (void)err;
    struct fake *fake = memory_new(sizeof *fake);
    fake->room = TAKEN_MAX;
    return &fake->sink;
}

static size_t fake_submit(struct sink *sink, struct delivery *const ds[], size_t n, instant_us now)
{
    (void)now;
    struct fake *fake = (struct fake *)sink;
    size_t taken = n < fake->room ? n : fake->room;
    for (size_t i = 0; i < taken; i++) {
        fake->taken[fake->taken_count++] = ds[i];
        fake->sent[fake->sent_count++] = ds[i]->event->id;
    }
    return taken;
}

static void fake_prepare(struct sink *sink, struct pollset *ps)
{
    (void)sink;
    (void)ps;
}

static void fake_progress(struct sink *sink, const struct pollset *ps, instant_us now)
{
    (void)ps;
    (void)now;
    struct fake *fake = (struct fake *)sink;
    for (size_t i = 0; i < fake->script_count; i++) {
        struct delivery *d = fake->script[i].d;
        d->retry_after_us = fake->script[i].retry_after_us;
        if (fake->script[i].verdict == VERDICT_ACKED)
            delivery_resolve(d, VERDICT_ACKED, NULL);
        else
            delivery_fail(d, fake->script[i].verdict, fake->script[i].kind, "scripted");
    }
    fake->script_count = 0;
}

static void fake_close(struct sink *sink)
{
    struct fake *fake = (struct fake *)sink;
    for (size_t i = 0; i < fake->taken_count; i++)
        delivery_fail(fake->taken[i], VERDICT_UNKNOWN, ERROR_UNREACHABLE, "closed");
    free(fake);
}

static enum reach fake_probe(struct sink *sink, struct span destination, instant_us now)
{
    (void)destination;
    (void)now;
    return ((struct fake *)sink)->reach;
}

static const struct sink_type fake_type = {.name = "fake",
                                           .open = fake_open,
                                           .submit = fake_submit,
                                           .prepare = fake_prepare,
                                           .progress = fake_progress,
                                           .close = fake_close,
                                           .probe = fake_probe};

static struct stage stage;
static struct sink_config sink_config;
static struct outlet *outlet;
static struct fake *fake;
static struct batch *batch;
static instant_us now;

static void set_up_to(const char *destination)
{
    struct error err;
    static char name[] = "fake";
    stage_init(&stage, destination);
    sink_config = (struct sink_config){.name = name, .type = &fake_type, .max_in_flight = 16};
    outlet = outlet_open(&sink_config, &stage.log, 1, &err);
    ck_assert_ptr_nonnull(outlet);
    stage.queue.outlet = outlet;
    fake = (struct fake *)outlet->sink;
    now = SECOND_US;
    batch = stage_batch(&stage);
}

static void set_up(void)
{
    set_up_to("there");
}

static void tear_down(void)
{
    outlet_close(outlet);
    stage_done(&stage);
}

/* One turn of the relay, a millisecond later. */
static void turn(void)
{
    now += MS_US;
    queue_route_claimed(&stage.queue);
    if (outlet->stopping)
        deliver_stop_all(outlet, now);
    deliver_ready(outlet, NULL, now, now);
}

static size_t taken_at(int64_t id)
{
    size_t i = 0;
    while (i < fake->taken_count && fake->taken[i]->event->id != id)
        i++;
    return i;
}

static bool in_flight(int64_t id)
{
    return taken_at(id) < fake->taken_count;
}

static void resolve_with(int64_t id, enum verdict verdict, enum error_kind kind, int64_t retry_after_us)
{
    size_t at = taken_at(id);
    ck_assert_msg(at < fake->taken_count, "event %d is not in flight", (int)id);
    fake->script[fake->script_count].d = fake->taken[at];
    fake->script[fake->script_count].verdict = verdict;
    fake->script[fake->script_count].kind = kind;
    fake->script[fake->script_count++].retry_after_us = retry_after_us;
    memmove(&fake->taken[at], &fake->taken[at + 1], (--fake->taken_count - at) * sizeof fake->taken[0]);
}

static void ack(int64_t id)
{
    resolve_with(id, VERDICT_ACKED, ERROR_NONE, 0);
}

static void fails(int64_t id, enum verdict verdict, enum error_kind kind)
{
    resolve_with(id, verdict, kind, 0);
}

#define assert_sent(...)                                                                                               \
    do {                                                                                                               \
        const int64_t expected[] = {__VA_ARGS__};                                                                      \
        ck_assert_uint_eq(fake->sent_count, sizeof expected / sizeof expected[0]);                                     \
        ck_assert_mem_eq(fake->sent, expected, sizeof expected);                                                       \
    } while (0)

START_TEST(one_event_of_a_key_is_in_flight_at_a_time)
{
    stage_event(batch, 1, "a");
    stage_event(batch, 2, "a");
    struct lane *lane = stage_event(batch, 3, "a")->lane;
    turn();
    turn();
    assert_sent(1);
    ack(1);
    turn();
    assert_sent(1, 2);
    ack(2);
    turn();
    ack(3);
    turn();
    assert_sent(1, 2, 3);
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_int_eq(lane->outcome, LANE_DELIVERED);
    ck_assert_uint_eq(lane->acked, 3);
    ck_assert_uint_eq(batch->finished, 1);
    ck_assert_uint_eq(batch->open, 0);
    ck_assert_uint_eq(stage.queue.metrics.delivered, 3);
}
END_TEST

START_TEST(many_keys_are_in_flight_together)
{
    stage_event(batch, 1, "a");
    stage_event(batch, 2, "b");
    stage_event(batch, 3, NULL);
    stage_event(batch, 4, NULL);
    turn();
    assert_sent(1, 2, 3, 4);
}
END_TEST

START_TEST(events_of_a_key_go_together_where_the_sink_keeps_their_order)
{
    fake->sink.traits = SINK_KEEPS_KEY_ORDER;
    stage_event(batch, 1, "a");
    stage_event(batch, 2, "a");
    stage_event(batch, 3, "a");
    turn();
    assert_sent(1, 2, 3);
}
END_TEST

START_TEST(failure_stops_its_lane_and_no_other)
{
    struct lane *bad = stage_event(batch, 1, "a")->lane;
    stage_event(batch, 2, "a");
    struct lane *good = stage_event(batch, 3, "b")->lane;
    stage_event(batch, 4, "b");
    turn();
    fails(1, VERDICT_RETRY, ERROR_REFUSED);
    ack(3);
    turn();
    turn();
    assert_sent(1, 3, 4);
    ck_assert_int_eq(bad->state, LANE_FINISHED);
    ck_assert_int_eq(bad->outcome, LANE_RETRY);
    ck_assert_int_eq(bad->failed->event.id, 1);
    ck_assert_int_eq(good->state, LANE_OPEN);
}
END_TEST

START_TEST(failure_of_an_earlier_event_outranks_a_later_one)
{
    fake->sink.traits = SINK_KEEPS_KEY_ORDER;
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    stage_event(batch, 2, "a");
    stage_event(batch, 3, "a");
    turn();
    ack(1);
    fails(3, VERDICT_REJECTED, ERROR_REFUSED);
    turn();
    ck_assert_int_eq(lane->state, LANE_STOPPED);
    fails(2, VERDICT_RETRY, ERROR_REFUSED);
    turn();
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_int_eq(lane->outcome, LANE_RETRY);
    ck_assert_int_eq(lane->failed->event.id, 2);
    ck_assert_uint_eq(lane->acked, 1);
}
END_TEST

START_TEST(ack_behind_a_failure_is_not_counted)
{
    fake->sink.traits = SINK_KEEPS_KEY_ORDER;
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    stage_event(batch, 2, "a");
    turn();
    ack(2);
    turn();
    ck_assert_uint_eq(lane->acked, 0);
    fails(1, VERDICT_UNKNOWN, ERROR_TIMEOUT);
    turn();
    ck_assert_uint_eq(lane->acked, 0);
}
END_TEST

START_TEST(what_a_full_sink_did_not_take_is_sent_once_and_in_order)
{
    fake->sink.traits = SINK_KEEPS_KEY_ORDER;
    fake->room = 1;
    for (int64_t id = 1; id <= 3; id++)
        stage_event(batch, id, "a");
    stage_event(batch, 4, "b");
    for (int i = 0; i < 12; i++)
        turn();
    ck_assert_uint_eq(fake->sent_count, 4);
    int64_t last = 0;
    for (size_t i = 0; i < 4; i++)
        if (fake->sent[i] != 4)
            ck_assert_int_eq(fake->sent[i], ++last);
}
END_TEST

START_TEST(no_more_than_max_in_flight_are_in_flight)
{
    sink_config.max_in_flight = 3;
    for (int64_t id = 1; id <= 5; id++)
        stage_event(batch, id, NULL);
    turn();
    assert_sent(1, 2, 3);
    ack(2);
    turn();
    assert_sent(1, 2, 3, 4);
}
END_TEST

START_TEST(attempts_end_in_the_queues_policy)
{
    struct lane *dead = stage_event(batch, 1, "a")->lane, *again = stage_event(batch, 2, "b")->lane;
    dead->first->event.attempt = 3;
    again->first->event.attempt = 2;
    turn();
    fails(1, VERDICT_RETRY, ERROR_REFUSED);
    resolve_with(2, VERDICT_RETRY, ERROR_REFUSED, 300 * SECOND_US);
    turn();
    ck_assert_int_eq(dead->outcome, LANE_DEAD);
    ck_assert_int_eq(again->outcome, LANE_RETRY);
    ck_assert_int_eq(again->delay_us, 300 * SECOND_US); /* asked for by the destination, beyond retry.max */
}
END_TEST

START_TEST(unreachable_destination_opens_the_circuit_and_costs_no_attempt)
{
    struct lane *first = stage_event(batch, 1, "a")->lane, *other = stage_event(batch, 2, "b")->lane;
    stage_event(batch, 3, "b");
    turn();
    fails(1, VERDICT_RETRY, ERROR_UNREACHABLE);
    ck_assert_int_eq(outlet_keys_wanted(outlet, stage.queue.route, now), INT64_MAX);
    turn();
    ck_assert_int_eq(first->outcome, LANE_RELEASED);
    ck_assert_int_eq(outlet_keys_wanted(outlet, stage.queue.route, now), 0);
    /* What another lane has in flight still gets its verdict; nothing follows it. */
    fails(2, VERDICT_UNKNOWN, ERROR_UNREACHABLE);
    turn();
    ck_assert_int_eq(other->outcome, LANE_RELEASED);
    assert_sent(1, 2);
}
END_TEST

static void open_circuit(void)
{
    stage_event(batch, 1, "a");
    turn();
    fails(1, VERDICT_RETRY, ERROR_UNREACHABLE);
    turn();
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_OPEN);
    ck_assert_int_eq(outlet_wake_at(outlet), outlet->circuit.retry_at);
}

START_TEST(open_circuit_probes_and_tries_one_event_before_all_others)
{
    open_circuit();
    now = outlet->circuit.retry_at;
    turn();
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_PROBING);
    ck_assert_int_eq(outlet_keys_wanted(outlet, stage.queue.route, now), 0);
    fake->reach = REACH_YES;
    turn();
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_TRIAL);
    ck_assert_int_eq(outlet_keys_wanted(outlet, stage.queue.route, now), 1);
    struct batch *next = stage_batch(&stage);
    stage_event(next, 5, "b");
    stage_event(next, 6, "c");
    turn();
    turn();
    assert_sent(1, 5);
    ck_assert_int_eq(outlet_keys_wanted(outlet, stage.queue.route, now), 0);
    ack(5);
    turn();
    assert_sent(1, 5, 6);
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_CLOSED);
}
END_TEST

START_TEST(failed_probe_and_failed_trial_open_the_circuit_again)
{
    open_circuit();
    fake->reach = REACH_NO;
    now = outlet->circuit.retry_at;
    turn();
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_OPEN);
    ck_assert_int_gt(outlet->circuit.retry_at, now);
    fake->reach = REACH_YES;
    now = outlet->circuit.retry_at;
    turn();
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_TRIAL);
    struct batch *next = stage_batch(&stage);
    struct lane *trial = stage_event(next, 5, "b")->lane, *waiting = stage_event(next, 6, "c")->lane;
    turn();
    fails(5, VERDICT_RETRY, ERROR_UNREACHABLE);
    turn();
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_OPEN);
    ck_assert_int_eq(trial->outcome, LANE_RELEASED);
    ck_assert_int_eq(waiting->state, LANE_FINISHED);
    ck_assert_int_eq(waiting->outcome, LANE_RELEASED);
}
END_TEST

/* ---- destinations that are troubled by themselves; the destination is the event's key ---- */

static void trouble_route_x(void)
{
    tear_down();
    set_up_to("{key}");
    stage_event(batch, 1, "x");
    turn();
    fails(1, VERDICT_RETRY, ERROR_ROUTE);
    turn();
    ck_assert_uint_eq(outlet->route_count, 1);
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_CLOSED);
}

/* Two lanes of one destination, as two batches make them. */
static struct lane *another_x(int64_t id)
{
    return stage_event(stage_batch(&stage), id, "x")->lane;
}

START_TEST(troubled_route_stops_its_own_events_only)
{
    trouble_route_x();
    struct lane *blocked = another_x(5);
    stage_event(stage_batch(&stage), 6, "y");
    turn();
    assert_sent(1, 6);
    ck_assert_int_eq(blocked->outcome, LANE_RELEASED);
    ck_assert_int_gt(blocked->release_us, 0);
    ack(6);
    turn();
    ck_assert_uint_eq(outlet->route_count, 1);
}
END_TEST

START_TEST(troubled_route_is_tried_with_one_event_at_a_time)
{
    trouble_route_x();
    now = outlet->routes->circuit.retry_at;
    turn();
    ck_assert_int_eq(outlet->routes->circuit.state, CIRCUIT_TRIAL);
    for (int64_t id = 5; id <= 9; id++)
        another_x(id);
    turn();
    ck_assert_uint_eq(fake->sent_count, 2);
    ack(fake->sent[1]);
    turn();
    ck_assert_uint_eq(outlet->route_count, 0);
    another_x(10);
    turn();
    ck_assert(in_flight(10));
}
END_TEST

START_TEST(trial_that_the_sink_had_no_room_for_is_tried_later)
{
    trouble_route_x();
    now = outlet->routes->circuit.retry_at;
    turn();
    fake->room = 0;
    another_x(5);
    turn();
    turn();
    ck_assert(!in_flight(5));
    fake->room = TAKEN_MAX;
    turn();
    turn();
    ck_assert(in_flight(5));
}
END_TEST

/* ---- events that no sink sees ---- */

START_TEST(oversize_event_is_refused_once_everything_before_it_is_acked)
{
    fake->sink.traits = SINK_KEEPS_KEY_ORDER;
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    stage_event(batch, 2, "a")->event.oversize_bytes = 5000;
    stage_event(batch, 3, "a");
    turn();
    assert_sent(1);
    ck_assert_int_eq(lane->state, LANE_OPEN);
    ack(1);
    turn();
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_int_eq(lane->outcome, LANE_DEAD);
    ck_assert_int_eq(lane->failed->event.id, 2);
    ck_assert_uint_eq(lane->acked, 1);
    assert_sent(1);
}
END_TEST

START_TEST(oversize_event_is_not_refused_when_the_one_before_it_fails)
{
    fake->sink.traits = SINK_KEEPS_KEY_ORDER;
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    stage_event(batch, 2, "a")->event.oversize_bytes = 5000;
    fake->room = 0;
    turn(); /* put back: nothing is decided yet */
    ck_assert_int_eq(lane->state, LANE_OPEN);
    fake->room = 1;
    turn();
    fails(1, VERDICT_RETRY, ERROR_REFUSED);
    turn();
    ck_assert_int_eq(lane->outcome, LANE_RETRY);
    ck_assert_int_eq(lane->failed->event.id, 1);
}
END_TEST

START_TEST(event_without_what_its_destination_names_is_dead)
{
    tear_down();
    set_up_to("to-{key}");
    struct lane *lane = stage_event(batch, 1, NULL)->lane;
    turn();
    ck_assert_int_eq(lane->outcome, LANE_DEAD);
    ck_assert_uint_eq(fake->sent_count, 0);
}
END_TEST

/* ---- ends ---- */

START_TEST(lost_batch_sends_nothing_more_and_leaves_no_trace)
{
    sink_config.max_in_flight = 1;
    stage_event(batch, 1, "a");
    stage_event(batch, 2, "a");
    stage_event(batch, 3, "b");
    turn();
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        deliver_stop(lane, 0, now);
    stage_lose(&stage);
    ck_assert_ptr_null(outlet->ready); /* the batch may be freed while the sink is full */
    ack(1);
    turn();
    assert_sent(1);
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        ck_assert_int_eq(lane->state, LANE_FINISHED);
}
END_TEST

START_TEST(failed_lane_is_not_in_the_ready_list)
{
    fake->sink.traits = SINK_KEEPS_KEY_ORDER;
    sink_config.max_in_flight = 1;
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    stage_event(batch, 2, "a");
    turn();
    ck_assert(lane->queued);
    fake->room = 0;
    fails(1, VERDICT_RETRY, ERROR_REFUSED);
    turn();
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert(!lane->queued);
    ck_assert_ptr_null(outlet->ready);
}
END_TEST

START_TEST(stopping_relay_ends_each_lane_with_what_is_in_flight)
{
    sink_config.max_in_flight = 2;
    struct lane *going = stage_event(batch, 1, "a")->lane;
    stage_event(batch, 2, "a");
    stage_event(batch, 3, "b");
    struct lane *waiting = stage_event(batch, 4, "c")->lane;
    turn();
    deliver_stop_all(outlet, now);
    ck_assert_int_eq(waiting->outcome, LANE_RELEASED);
    ack(1);
    turn();
    turn();
    assert_sent(1, 3);
    ck_assert_int_eq(going->state, LANE_FINISHED);
    ck_assert_int_eq(going->outcome, LANE_RELEASED);
    ck_assert_uint_eq(going->acked, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("deliver");
    TCase *tcase = tcase_create("deliver");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, one_event_of_a_key_is_in_flight_at_a_time);
    tcase_add_test(tcase, many_keys_are_in_flight_together);
    tcase_add_test(tcase, events_of_a_key_go_together_where_the_sink_keeps_their_order);
    tcase_add_test(tcase, failure_stops_its_lane_and_no_other);
    tcase_add_test(tcase, failure_of_an_earlier_event_outranks_a_later_one);
    tcase_add_test(tcase, ack_behind_a_failure_is_not_counted);
    tcase_add_test(tcase, what_a_full_sink_did_not_take_is_sent_once_and_in_order);
    tcase_add_test(tcase, no_more_than_max_in_flight_are_in_flight);
    tcase_add_test(tcase, attempts_end_in_the_queues_policy);
    tcase_add_test(tcase, unreachable_destination_opens_the_circuit_and_costs_no_attempt);
    tcase_add_test(tcase, open_circuit_probes_and_tries_one_event_before_all_others);
    tcase_add_test(tcase, failed_probe_and_failed_trial_open_the_circuit_again);
    tcase_add_test(tcase, troubled_route_stops_its_own_events_only);
    tcase_add_test(tcase, troubled_route_is_tried_with_one_event_at_a_time);
    tcase_add_test(tcase, trial_that_the_sink_had_no_room_for_is_tried_later);
    tcase_add_test(tcase, oversize_event_is_refused_once_everything_before_it_is_acked);
    tcase_add_test(tcase, oversize_event_is_not_refused_when_the_one_before_it_fails);
    tcase_add_test(tcase, event_without_what_its_destination_names_is_dead);
    tcase_add_test(tcase, lost_batch_sends_nothing_more_and_leaves_no_trace);
    tcase_add_test(tcase, failed_lane_is_not_in_the_ready_list);
    tcase_add_test(tcase, stopping_relay_ends_each_lane_with_what_is_in_flight);
    return run_suite(suite);
}
