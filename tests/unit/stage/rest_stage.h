/* tests/unit/stage/rest_stage.h -- a queue on the way to rest, with answers made by hand. */
#pragma once

#include "relay/rest/rest.h"

#include "relay/base/pollset.h"
#include "relay/side/upkeep.h"
#include "tests/unit/stage/hand_made.h"

#define NOW (10 * SECOND_US)
#define IDLE_AT (NOW + SECOND_US)
#define QUIET_US (20 * MS_US)

static struct stage stage;
static struct queue *queue;
static struct rest *rest;
static bool pending;

static inline bool is_pending(const struct ordering *o, instant_us now)
{
    (void)o, (void)now;
    return pending;
}

static inline instant_us never(const struct ordering *o)
{
    (void)o;
    return INSTANT_NEVER;
}

static inline void forget(struct ordering *o)
{
    (void)o;
}

static const struct ordering_type type = {.pending = is_pending, .pending_at = never, .forget = forget};

static inline void set_up(void)
{
    stage_init(&stage, "there");
    queue = &stage.queue;
    rest = &queue->rest;
    pending = false;
    stage.noting.ordering.type = &type;
    stage.claim.state = CLAIM_IDLE;
    stage.claim.sent_at = NOW - SECOND_US;
    for (size_t i = 0; i < UPKEEP_TASKS; i++)
        stage.upkeep.due_at[i] = INSTANT_NEVER;
    queue->side_status.connected = queue->side_requests.probe_answered = true;
    queue->pause.known = queue->window.known = true;
    queue->pace.poll_at = INSTANT_NEVER / 2;
    rest_open(queue, false);
    rest_step(queue, NOW);
}

static inline void tear_down(void)
{
    stage_done(&stage);
}

/* As the side connection answers the question under way. */
static inline void answer(struct rest_answer words, instant_us now)
{
    words.number = queue->side_requests.rest_number;
    queue->rest_answer = words;
    rest_step(queue, now);
}

static inline void may_rest(instant_us now)
{
    answer((struct rest_answer){.may = true, .held = true}, now);
}

/* It has the locks, and has asked who writes. */
static inline void lock(instant_us now)
{
    rest_step(queue, now);
    ck_assert_int_eq(rest->state, REST_ASKING);
    may_rest(now);
    ck_assert_int_eq(rest->lock, REST_LOCK_WANTED);
    rest_lock_moved(queue, true);
    rest_lock_answered(queue, true, 77, 7);
    rest_step(queue, now);
    ck_assert_int_eq(rest->state, REST_WAITING);
}

static inline void come_to_look(instant_us now)
{
    lock(now);
    may_rest(now);
    ck_assert_int_eq(rest->state, REST_LOOKING);
}

static inline void fall_asleep(void)
{
    come_to_look(IDLE_AT);
    answer((struct rest_answer){0}, IDLE_AT);
    ck_assert_int_eq(rest->state, REST_RESTING);
}

static inline void is_awake(bool unlocks)
{
    ck_assert_int_eq(rest->state, REST_AWAKE);
    ck_assert_int_eq(rest->lock, unlocks ? REST_UNLOCK_WANTED : REST_UNLOCKED);
    ck_assert_int_eq(queue->side_requests.rest, REST_ASKS_NOTHING);
}
