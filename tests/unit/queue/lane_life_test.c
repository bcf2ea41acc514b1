/* The states of a lane: what moves are there, and what they count. */
#include "relay/queue/lane_life.h"

#include "relay/queue/batch.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/architecture_page.h"

static struct batch *batch;
static struct lane *lane;

static void set_up(void)
{
    struct error err;
    struct event event = {.id = 1, .key = span_of("a")};
    batch = batch_new(4096, NULL, NULL);
    ck_assert(batch_add(batch, &event, 0, &err));
    lane = batch->lanes;
}

static void tear_down(void)
{
    batch_free(batch);
}

static void assert_counts(size_t open, size_t blocked, size_t finished, size_t unsettled)
{
    ck_assert_uint_eq(batch->open, open);
    ck_assert_uint_eq(batch->blocked, blocked);
    ck_assert_uint_eq(batch->finished, finished);
    ck_assert_uint_eq(batch->unsettled, unsettled);
}

static void move(enum lane_state to)
{
    lane_move(lane, to);
    ck_assert_int_eq(lane->state, to);
}

START_TEST(batch_counts_its_lanes_by_their_states)
{
    assert_counts(1, 0, 0, 1);
    move(LANE_STOPPED);
    assert_counts(1, 0, 0, 1);
    move(LANE_FINISHED);
    assert_counts(0, 0, 1, 1);
    move(LANE_BLOCKED);
    assert_counts(0, 1, 0, 1);
    move(LANE_FINISHED);
    move(LANE_SETTLING);
    assert_counts(0, 0, 0, 1);
    move(LANE_FINISHED);
    assert_counts(0, 0, 1, 1);
    move(LANE_SETTLING);
    move(LANE_SETTLED);
    assert_counts(0, 0, 0, 0);
    move(LANE_FINISHED);
    assert_counts(0, 0, 1, 1);
}
END_TEST

START_TEST(lost_key_is_not_held_again)
{
    for (enum hold to = 0; to < HOLDS; to++)
        ck_assert(!lane_life_has_hold(HOLD_LOST, to));
    ck_assert(!lane_is_lost(lane));
    lane_hold(lane, HOLD_LEASE);
    lane_hold(lane, HOLD_CALLED_BACK);
    lane_hold(lane, HOLD_LEASE);
    ck_assert(!lane_is_lost(lane));
    lane_hold(lane, HOLD_LOST);
    ck_assert(lane_is_lost(lane));
}
END_TEST

START_TEST(lanes_of_a_lost_batch_are_lost)
{
    lane_hold(lane, HOLD_SESSION);
    batch_hold(batch, HOLD_SESSION);
    ck_assert(!lane_is_lost(lane));
    batch_hold(batch, HOLD_LOST);
    ck_assert(lane_is_lost(lane));
}
END_TEST

START_TEST(architecture_page_has_the_tables_of_moves)
{
    assert_page_has(lane_life_print);
    assert_page_has(lane_life_print_holds);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lane_life");
    TCase *tcase = tcase_create("lane_life");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, batch_counts_its_lanes_by_their_states);
    tcase_add_test(tcase, lost_key_is_not_held_again);
    tcase_add_test(tcase, lanes_of_a_lost_batch_are_lost);
    tcase_add_test(tcase, architecture_page_has_the_tables_of_moves);
    return run_suite(suite);
}
