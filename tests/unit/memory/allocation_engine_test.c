/* Running out of memory between claim and settlement: lanes, routes, circuits, suspects and what is to be written. */
#include "relay/settle/settle.h"
#include "tests/unit/memory/allocation.h"
#include "tests/unit/stage/fake_sink.h"

static void fill(void)
{
    for (int64_t id = 1; id <= 3; id++)
        stage_event(batch, id, "a");
    for (int64_t id = 4; id <= 6; id++)
        stage_event(batch, id, "b");
    stage_event(batch, 7, "c");
    stage_event(batch, 8, NULL);
    batch_add_ended_wait(batch, span_of("d"), 9);
}

static void settle(void)
{
    struct settle_job *job = settle_collect(&stage.queue, stage.claim.batches, true);
    ck_assert_ptr_nonnull(job);
    settle_abort(job);
    job = settle_collect(&stage.queue, stage.claim.batches, true);
    ck_assert_ptr_nonnull(job);
    settle_commit(&stage.queue, job, now);
    settle_free_batches(&stage.claim.batches);
}

static void deliver_and_settle(void)
{
    set_up_to("{type}/{key}");
    fill();
    turn();
    ack(1);
    ack(4);
    fails(7, VERDICT_REJECTED, ERROR_REFUSED);
    turn();
    ack(2);
    fails(5, VERDICT_RETRY, ERROR_REFUSED);
    turn();
    ack(3);
    turn();
    settle();
    tear_down();
}

static void lose_destinations(void)
{
    set_up_to("{type}/{key}");
    fill();
    turn();
    fails(1, VERDICT_RETRY, ERROR_ROUTE);
    fails(4, VERDICT_UNKNOWN, ERROR_UNREACHABLE);
    turn();
    fails(7, VERDICT_RETRY, ERROR_OVERLOADED);
    turn();
    fake->reach = REACH_YES;
    for (int i = 0; i < 4; i++) {
        now += SECOND_US;
        turn();
    }
    settle();
    tear_down();
}

static void remember_keys(void)
{
    struct keyset keys;
    keyset_init(&keys, 4);
    for (int i = 0; i < 8; i++) {
        char key[16];
        int size = snprintf(key, sizeof key, "key %d", i);
        struct span text = {key, (size_t)size};
        ck_assert(keyset_put(&keys, text, span_hash(text), INSTANT_NEVER, NULL) == (i < 4));
    }
    keyset_done(&keys);
}

static const struct scene scenes[] = {
    {"delivery and settlement", deliver_and_settle},
    {"destinations that are down", lose_destinations},
    {"remembered keys", remember_keys},
};

START_TEST(no_memory_is_said_once_and_ends_the_process)
{
    allocation_fail_each(&scenes[_i]);
}
END_TEST

int main(void)
{
    return allocation_run("allocation_engine", no_memory_is_said_once_and_ends_the_process,
                          (int)(sizeof scenes / sizeof scenes[0]));
}
