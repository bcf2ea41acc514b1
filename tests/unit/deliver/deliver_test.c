/* The engine against a sink that follows a script. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/fake_sink.h"

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

/* Else those that were claimed first would never go while there is a backlog. */
START_TEST(what_a_full_sink_did_not_take_goes_before_what_came_later)
{
    fake->room = 0;
    for (int64_t id = 1; id <= 5; id++)
        stage_event(batch, id, NULL);
    turn();
    fake->room = 1;
    for (int i = 0; i < 5; i++)
        turn();
    assert_sent(1, 2, 3, 4, 5);
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

START_TEST(no_more_than_the_sink_has_use_for_are_in_flight)
{
    fake->sink.in_flight_max = 2;
    for (int64_t id = 1; id <= 5; id++)
        stage_event(batch, id, NULL);
    turn();
    assert_sent(1, 2);
    fake->sink.in_flight_max = 3;
    turn();
    assert_sent(1, 2, 3);
    fake->sink.in_flight_max = 1;
    ack(1);
    ack(2);
    turn();
    assert_sent(1, 2, 3);
    fake->sink.in_flight_max = 100;
    sink_config.max_in_flight = 2;
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

static const struct delivery *cancelled[TAKEN_MAX];
static size_t cancelled_count;

static void note_cancelled(struct sink *sink, struct delivery *d)
{
    ck_assert_ptr_eq(sink, &fake->sink);
    cancelled[cancelled_count++] = d;
}

START_TEST(what_is_in_flight_of_a_lost_lane_is_called_back_where_its_sink_can)
{
    struct sink_type type = fake_type;
    type.cancel = note_cancelled;
    fake->sink.traits = SINK_KEEPS_KEY_ORDER;
    sink_config.max_in_flight = 3;
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    for (int64_t id = 2; id <= 4; id++)
        stage_event(batch, id, "a");
    const struct lane *idle = stage_event(batch, 5, "b")->lane;
    turn();
    assert_sent(1, 2, 3);
    ack(1);
    fake->room = 0;
    turn();
    deliver_cancel(lane); /* the sink cannot */
    fake->sink.type = &type;
    cancelled_count = 0;
    deliver_cancel(lane);
    deliver_cancel(idle);
    fake->sink.type = &fake_type;
    ck_assert_uint_eq(cancelled_count, 2);
    ck_assert_int_eq(cancelled[0]->event->id, 2);
    ck_assert_int_eq(cancelled[1]->event->id, 3);
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
    tcase_add_test(tcase, what_a_full_sink_did_not_take_goes_before_what_came_later);
    tcase_add_test(tcase, no_more_than_max_in_flight_are_in_flight);
    tcase_add_test(tcase, no_more_than_the_sink_has_use_for_are_in_flight);
    tcase_add_test(tcase, attempts_end_in_the_queues_policy);
    tcase_add_test(tcase, oversize_event_is_refused_once_everything_before_it_is_acked);
    tcase_add_test(tcase, oversize_event_is_not_refused_when_the_one_before_it_fails);
    tcase_add_test(tcase, event_without_what_its_destination_names_is_dead);
    tcase_add_test(tcase, lost_batch_sends_nothing_more_and_leaves_no_trace);
    tcase_add_test(tcase, what_is_in_flight_of_a_lost_lane_is_called_back_where_its_sink_can);
    tcase_add_test(tcase, failed_lane_is_not_in_the_ready_list);
    tcase_add_test(tcase, stopping_relay_ends_each_lane_with_what_is_in_flight);
    return run_suite(suite);
}
