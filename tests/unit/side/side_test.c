/* Rounds of a queue's other connection that cannot be sent, and when it has nothing to say. */
#include "relay/side/side.h"

#include "relay/hold/lease.h"
#include "relay/queue/pace.h"
#include "relay/settle/round.h"
#include "relay/settle/settle.h"
#include "relay/side/upkeep.h"
#include "sql_text.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"
#include "tests/unit/stage/scripted_db.h"

#include <unistd.h>

#define NOW (10 * SECOND_US)

static struct stage stage;
static struct side *side;
static struct batch *batch;
static struct config process;

/* ---- a strategy of one statement for each of its rounds ---- */

static size_t one_settle(struct ordering *o, const struct settlement *s, struct arena *arena, struct statement *ret)
{
    (void)o;
    (void)s;
    (void)arena;
    ret[0] = statement_of("settle");
    return 1;
}

static size_t one_probe(struct ordering *o, instant_us now, struct arena *arena, struct statement *ret)
{
    (void)o;
    (void)now;
    (void)arena;
    ret[0] = statement_of("probe");
    return 1;
}

static void one_peek(const struct ordering *o, bool guarded, struct arena *arena, struct statement *ret)
{
    (void)guarded;
    (void)o;
    (void)arena;
    *ret = statement_of("peek");
}

static struct statement one_renew(struct ordering *o, const struct span *tokens, size_t count, int backend_pid,
                                  struct arena *arena)
{
    (void)o;
    (void)tokens;
    (void)count;
    (void)backend_pid;
    (void)arena;
    return statement_of("renew");
}

static size_t probed_index;

static void one_probed(struct ordering *o, size_t index, const PGresult *res)
{
    (void)o;
    (void)res;
    probed_index = index;
}

static bool wants_none(const struct ordering *o)
{
    (void)o;
    return false;
}

static bool wants_one(const struct ordering *o)
{
    (void)o;
    return true;
}

static int forgotten;

static void one_forget(struct ordering *o)
{
    (void)o;
    forgotten++;
}

static void one_inhabited(const struct ordering *o, struct id_ranges *ret)
{
    (void)o;
    *ret = (struct id_ranges){.at = {{7, 9}}, .count = 1};
}

static const struct ordering_type one = {.settle = one_settle,
                                         .probe = one_probe,
                                         .probed = one_probed,
                                         .wants_probe = wants_none,
                                         .forget = one_forget,
                                         .peek = one_peek,
                                         .inhabited = one_inhabited,
                                         .renew = one_renew,
                                         .released = note_released};

static void set_up(void)
{
    static char empty_sql[] = "empty";
    static struct table table;
    stage_init(&stage, "there");
    stage.noting.ordering.type = &one;
    stage.queue.process = &process;
    stage.queue.table = &table;
    stage.queue.sql.empty.plain = empty_sql;
    batch = stage_batch(&stage);
    stage.queue.arrived = NULL;
    side_open(&stage.queue);
    side = stage.queue.side;
    side->state = SIDE_IDLE;
    side->probe_at = INSTANT_NEVER;
    for (size_t i = 0; i < UPKEEP_TASKS; i++)
        stage.queue.upkeep->due_at[i] = INSTANT_NEVER;
    stage.queue.pause.known = true;
    script_reset();
}

static void tear_down(void)
{
    side_close(&stage.queue);
    stage_done(&stage);
}

/* Of a claim that was lost: settled here. */
static struct lane *orphaned_ack(void)
{
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    lane->state = LANE_FINISHED;
    lane->acked = 1;
    batch->open--;
    batch->finished++;
    stage_lose(&stage);
    return lane;
}

static void assert_dropped(void)
{
    ck_assert_uint_eq(script.sends, script.fails_at); /* nothing goes behind what did not */
    ck_assert_str_eq(script.drop_reason, "cannot be sent");
    script_brings(DB_DOWN);
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_OFF);
    ck_assert_ptr_null(side->round.arena);
}

static const struct {
    bool shared;
    size_t fails_at;
} settlements[] = {{false, 1}, {false, 2}, {true, 1}, {true, 2}, {true, 3}};

START_TEST(settlement_that_cannot_be_sent_drops_the_connection_and_is_made_again)
{
    struct lane *lane = orphaned_ack();
    script.shared = settlements[_i].shared; /* then its lock_timeout goes ahead */
    script.fails_at = settlements[_i].fails_at;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_SETTLING);
    ck_assert_int_eq(lane->state, LANE_SETTLING);
    assert_dropped();
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_ptr_eq(stage.queue.holds.orphans, batch);
}
END_TEST

/* What the table refuses would be tried for ever. */
START_TEST(probe_that_is_due_comes_after_a_settlement_that_failed)
{
    struct lane *lane = orphaned_ack();
    side->probe_at = NOW;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_SETTLING);
    script_brings_result(0, PGRES_FATAL_ERROR);
    script_brings(DB_ROUND_END);
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    side_ready(&stage.queue, NULL, side->retry_at);
    ck_assert_int_eq(side->state, SIDE_PROBING);
    script_brings_result(0, PGRES_FATAL_ERROR); /* and the other way round */
    script_brings(DB_ROUND_END);
    side_ready(&stage.queue, NULL, side->retry_at);
    side_ready(&stage.queue, NULL, side->retry_at);
    ck_assert_int_eq(lane->state, LANE_SETTLING);
}
END_TEST

/* What it was is not said to be a claim. */
START_TEST(question_that_fails_is_told_by_its_name)
{
    static char table[] = "public.orders";
    char line[512] = "";
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    stage.log = (struct log){.level = LOG_WARN, .fd = fds[1]};
    stage.config.table = table;
    side->probe_at = NOW;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_PROBING);
    script_brings_result(0, PGRES_FATAL_ERROR);
    script_brings(DB_ROUND_END);
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_gt(read(fds[0], line, sizeof line - 1), 0);
    ck_assert_msg(strstr(line, "side.failed queue=orders table=public.orders task=probe ") != NULL, "%s", line);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

START_TEST(question_that_cannot_be_sent_drops_the_connection)
{
    side->probe_at = NOW;
    script.fails_at = (size_t)_i;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_PROBING);
    assert_dropped();
}
END_TEST

/* The probe under way is answered, and the next turn begins. */
static void answer_probe(void)
{
    ck_assert_int_eq(side->state, SIDE_PROBING);
    script_brings_result(0, PGRES_TUPLES_OK);
    script_brings(DB_ROUND_END);
    side_ready(&stage.queue, NULL, NOW);
}

START_TEST(nothing_is_claimed_until_a_new_session_has_learned_the_ids_anew)
{
    forgotten = 0;
    stage.queue.side_requests.probe_answered = true;
    script_brings(DB_UP);
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(forgotten, 1);
    ck_assert(!stage.queue.side_requests.probe_answered);
    stage.queue.side_requests.check_empty = true; /* claims look first */
    answer_probe();
    ck_assert(stage.queue.side_requests.probe_answered && !stage.queue.side_requests.check_empty);
    ck_assert_int_eq(stage.queue.side_requests.probe_answered_at, NOW);
    ck_assert_int_eq(side->state, SIDE_IDLE);
    ck_assert_int_eq(forgotten, 1);
}
END_TEST

START_TEST(probe_that_was_sent_before_a_connection_came_up_says_nothing_about_its_server)
{
    stage.queue.side_requests.probe_answered = true;
    side->probe_at = NOW;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_PROBING);
    side_requests_probe(&stage.queue.side_requests); /* by a claim's connection */
    ck_assert(!stage.queue.side_requests.probe_answered);
    answer_probe();
    ck_assert(!stage.queue.side_requests.probe_answered); /* and it is asked again at once */
    stage.queue.pace.poll_at = INSTANT_NEVER;
    answer_probe();
    ck_assert(stage.queue.side_requests.probe_answered);
    ck_assert_int_eq(stage.queue.pace.poll_at, NOW);
}
END_TEST

START_TEST(probe_comes_soon_again_while_there_is_work_and_much_to_settle)
{
    static struct ordering_type settling;
    settling = one;
    settling.wants_probe = wants_one;
    stage.noting.ordering.type = &settling;
    stage.queue.pace.work_known = _i == 0;
    side->probe_at = NOW;
    side_ready(&stage.queue, NULL, NOW);
    answer_probe();
    ck_assert_int_eq(side->probe_at, NOW + (_i == 0 ? 20 : 40) * MS_US);
}
END_TEST

START_TEST(what_is_due_goes_between_two_tasks_that_wait_for_nothing)
{
    stage.queue.upkeep->due_at[UPKEEP_LOOK] = stage.queue.upkeep->due_at[UPKEEP_LEASES] = NOW;
    side->probe_at = NOW;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_str_eq(script.sent[0], sql_paused_look);
    script_brings_result(0, PGRES_TUPLES_OK);
    script_brings(DB_ROUND_END);
    side_ready(&stage.queue, NULL, NOW + SECOND_US);
    ck_assert_int_eq(stage.queue.upkeep->due_at[UPKEEP_LOOK], NOW + 2 * SECOND_US); /* it has taken a second */
    struct lane *lane = orphaned_ack();
    answer_probe();
    ck_assert_int_eq(side->state, SIDE_UPKEEP);
    ck_assert_str_eq(script.sent[4], sql_lease_end_ownerless);
    script_brings_count(0, 0);
    script_brings(DB_ROUND_END);
    side_ready(&stage.queue, NULL, NOW + 3 * SECOND_US); /* and the look is due again */
    ck_assert_int_eq(lane->state, LANE_SETTLING);
}
END_TEST

START_TEST(idle_queue_is_told_whether_there_is_anything)
{
    stage.queue.side_requests.peek = true;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_PEEKING);
    ck_assert(!stage.queue.side_requests.peek);
    stage.queue.pace.poll_at = INSTANT_NEVER;
    script_brings_result(0, PGRES_TUPLES_OK);
    script_brings(DB_ROUND_END);
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_IDLE);
    ck_assert_int_eq(stage.queue.pace.poll_at, INSTANT_NEVER); /* no row, no news */
}
END_TEST

START_TEST(table_is_not_empty_when_something_came_since_it_was_asked)
{
    for (int woken = 0; woken <= 1; woken++) {
        stage.queue.side_requests.check_empty = true;
        side_ready(&stage.queue, NULL, NOW);
        ck_assert_int_eq(side->state, SIDE_CHECKING);
        if (woken)
            pace_wake(&stage.queue, NOW);
        script_brings_result(0, PGRES_TUPLES_OK);
        script_brings(DB_ROUND_END);
        side_ready(&stage.queue, NULL, NOW);
        ck_assert_int_eq(stage.queue.side_requests.found_empty, !woken);
    }
}
END_TEST

START_TEST(peek_that_cannot_be_sent_drops_the_connection)
{
    stage.queue.side_requests.peek = true;
    script.fails_at = (size_t)_i;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_PEEKING);
    assert_dropped();
}
END_TEST

START_TEST(renewal_that_fails_is_made_again_soon)
{
    stage.config.lease_us = 12 * SECOND_US;
    batch->leased_at = NOW - 4 * SECOND_US;
    stage.queue.holds.leased = batch;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_RENEWING);
    script_brings_result(0, PGRES_FATAL_ERROR);
    script_brings(DB_ROUND_END);
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(lease_due_at(&stage.queue), NOW + SECOND_US);
    ck_assert_int_eq(batch->leased_at, NOW - 4 * SECOND_US);
    stage.queue.holds.leased = NULL;
}
END_TEST

/* They run out; everything else can wait. */
START_TEST(renewal_that_is_due_goes_before_all_else)
{
    stage.config.lease_us = 12 * SECOND_US;
    batch->leased_at = NOW - 4 * SECOND_US;
    stage.queue.holds.leased = batch;
    stage.queue.upkeep->due_at[UPKEEP_LOOK] = side->probe_at = NOW;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_RENEWING);
    ck_assert_str_eq(script.sent[0], "renew");
    stage.queue.holds.leased = NULL;
}
END_TEST

/* Behind a pooler; what a leased queue asks may be waited for by its renewals. */
START_TEST(lock_timeout_goes_ahead_of_all_that_a_leased_queue_asks)
{
    script.shared = true;
    stage.queue.leases.used = _i;
    side->probe_at = NOW;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_str_eq(script.sent[0], _i ? sql_settle_timeouts : "probe");
    script_brings_results();
    script_brings(DB_ROUND_END);
    probed_index = SIZE_MAX;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_uint_eq(probed_index, 0);
}
END_TEST

START_TEST(connection_that_is_given_up_is_sent_nothing)
{
    struct lane *lane = orphaned_ack();
    script.idle = false; /* DB_DOWN is still to come */
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_IDLE);
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_uint_eq(script.sends, 0);
}
END_TEST

static const struct {
    instant_us retry_at, probe_at, wakes_at;
} wakes[] = {
    {NOW + 1, NOW + 2, NOW + 1}, {NOW, NOW + 2, NOW + 2}, {NOW, NOW, INSTANT_NEVER}, /* a probe is due already */
};

START_TEST(relay_is_woken_for_what_comes_next)
{
    struct pollset *ps = pollset_new();
    pollset_clear(ps);
    side->retry_at = wakes[_i].retry_at;
    side->probe_at = wakes[_i].probe_at;
    side_prepare(&stage.queue, ps, NOW);
    ck_assert_int_eq(pollset_next_deadline(ps), wakes[_i].wakes_at);
    pollset_free(ps);
}
END_TEST

/* Nobody has looked yet whether the queue is paused. */
static void owe_a_look(void)
{
    stage.queue.pause.known = false;
    stage.queue.upkeep->due_at[UPKEEP_LOOK] = 0;
    side->probe_at = 0;
}

START_TEST(first_look_comes_before_the_first_probe)
{
    owe_a_look();
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_UPKEEP);
    ck_assert_str_eq(script.sent[0], sql_paused_look);
    script_brings_result(0, PGRES_FATAL_ERROR);
    script_brings(DB_ROUND_END);
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_IDLE); /* and no probe: nothing is to be claimed before */
    ck_assert_uint_eq(side->failures, 0);
    ck_assert_int_eq(upkeep_due_at(&stage.queue), NOW + SECOND_US);
}
END_TEST

START_TEST(look_does_not_wait_until_settling_is_tried_again)
{
    owe_a_look();
    side->retry_at = NOW + 5 * SECOND_US;
    side_ready(&stage.queue, NULL, NOW);
    ck_assert_int_eq(side->state, SIDE_UPKEEP);
    script_brings_result(0, PGRES_COMMAND_OK);
    script_brings(DB_ROUND_END);
    side_ready(&stage.queue, NULL, NOW);
    ck_assert(stage.queue.pause.known);
    ck_assert_int_eq(side->state, SIDE_IDLE);
}
END_TEST

static void add_tests(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, settlement_that_cannot_be_sent_drops_the_connection_and_is_made_again, 0,
                        (int)(sizeof settlements / sizeof settlements[0]));
    tcase_add_test(tcase, probe_that_is_due_comes_after_a_settlement_that_failed);
    tcase_add_test(tcase, question_that_fails_is_told_by_its_name);
    tcase_add_loop_test(tcase, question_that_cannot_be_sent_drops_the_connection, 1, 3);
    tcase_add_test(tcase, nothing_is_claimed_until_a_new_session_has_learned_the_ids_anew);
    tcase_add_test(tcase, probe_that_was_sent_before_a_connection_came_up_says_nothing_about_its_server);
    tcase_add_loop_test(tcase, probe_comes_soon_again_while_there_is_work_and_much_to_settle, 0, 2);
    tcase_add_test(tcase, what_is_due_goes_between_two_tasks_that_wait_for_nothing);
    tcase_add_test(tcase, idle_queue_is_told_whether_there_is_anything);
    tcase_add_loop_test(tcase, peek_that_cannot_be_sent_drops_the_connection, 1, 3);
    tcase_add_test(tcase, renewal_that_fails_is_made_again_soon);
    tcase_add_test(tcase, renewal_that_is_due_goes_before_all_else);
    tcase_add_loop_test(tcase, lock_timeout_goes_ahead_of_all_that_a_leased_queue_asks, 0, 2);
    tcase_add_test(tcase, connection_that_is_given_up_is_sent_nothing);
    tcase_add_loop_test(tcase, relay_is_woken_for_what_comes_next, 0, (int)(sizeof wakes / sizeof wakes[0]));
}

int main(void)
{
    Suite *suite = suite_create("side");
    TCase *tcase = tcase_create("side");
    suite_add_tcase(suite, tcase);
    add_tests(tcase);
    tcase_add_test(tcase, table_is_not_empty_when_something_came_since_it_was_asked);
    tcase_add_test(tcase, first_look_comes_before_the_first_probe);
    tcase_add_test(tcase, look_does_not_wait_until_settling_is_tried_again);
    return run_suite(suite);
}
