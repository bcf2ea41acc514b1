#include "relay/rest/rest.h"

#include "relay/base/fault_point.h"
#include "relay/base/lesser.h"
#include "relay/base/pollset.h"
#include "relay/claim/claim_state.h"
#include "relay/queue/pace.h"
#include "relay/queue/queue.h"
#include "relay/queue/report.h"
#include "relay/side/unreadable.h"
#include "relay/side/upkeep.h"

#define CALM_US SECOND_US         /* in so long */
#define CALM_FINDS 16             /* fewer claims than these have found something; */
#define IDLE_US (20 * MS_US)      /* and for so long none has */
#define ROUSED_US (500 * MS_US)   /* a queue that has more to do than that is awake */
#define REFUSED_US (50 * MS_US)   /* a producer asked just then: the locks are tried again */
#define PAUSE_MIN_US (50 * MS_US) /* between questions who still writes */
#define PAUSE_MAX_US (5 * SECOND_US)
#define MAY_US (60 * SECOND_US)      /* whether a queue may rest is asked again */
#define LEFT_MAX_US (30 * SECOND_US) /* the last look has found something that no claim takes: between tries */
#define LOOK_PART 100                /* last looks take no more than this part of the time */
#define REST_MAX_US HOUR_US
#define CHECK_MIN_US (60 * SECOND_US) /* between questions of a queue that rests whether it still may */

void rest_open(struct queue *queue, bool never)
{
    queue->rest.never = never || queue->config->state != NULL;
    queue->rest.left_us = SECOND_US;
}

/* ---- is there anything to do? ---- */

static bool is_closed(const struct queue *queue)
{
    return queue->pause.on || queue->window.closed;
}

/* There was something a moment ago, or there is. Behind a claim that took all, and whose events were announced, the
 * last look says whether there is more. */
static bool is_busy(const struct queue *queue, instant_us now)
{
    if (!holds_are_empty(&queue->holds) || queue->arrived)
        return true;
    bool announced = queue->rest.lock == REST_LOCKED && queue->pace.took_all;
    return !is_closed(queue) &&
           ((queue->pace.found && !announced) || queue->keys.more.count > 0 || queue->keys.busy_elsewhere.count > 0 ||
            queue->ordering->type->pending(queue->ordering, now));
}

/* Nothing is under way, and all is known that the relay has to know. */
static bool is_quiet(const struct queue *queue, instant_us now)
{
    for (size_t i = 0; i < queue->claim_count; i++)
        if (queue->claims[i].state != CLAIM_IDLE || queue->claims[i].in_transaction || queue->claims[i].retry_at > now)
            return false;
    const struct side_requests *requests = &queue->side_requests;
    return queue->side_status.connected && !queue->side_status.settling && requests->probe_answered &&
           queue->pause.known && !queue->pause.refused && queue->window.known && queue->unreadable.count == 0 &&
           unreadable_due_at(queue) == INSTANT_NEVER && queue->blocked.wake_at == 0 && upkeep_rest_until(queue) > now &&
           (is_closed(queue) || queue->pace.poll_at > now);
}

/* Claims that have found something since the last step. The first step counts as many as there is room for: a relay
 * that has just begun does not know how calm its queue is. */
static void note_finds(struct queue *queue, instant_us now)
{
    struct rest *rest = &queue->rest;
    uint64_t finds = queue->pace.finds + REST_FINDS_MAX;
    for (; rest->finds < finds; rest->finds++)
        rest->found_at[rest->finds % REST_FINDS_MAX] = now;
}

/* Fewer than so many claims have found something lately. */
static bool is_calm(const struct rest *rest, uint64_t finds, instant_us now)
{
    return rest->finds >= finds && now - rest->found_at[(rest->finds - finds) % REST_FINDS_MAX] >= CALM_US;
}

/* ---- awake ---- */

static void put(struct queue *queue, enum rest_question_kind kind)
{
    queue->side_requests.rest = kind;
    queue->side_requests.rest_number++;
}

static void ask(struct queue *queue, enum rest_question_kind kind, enum rest_state state, instant_us now)
{
    queue->rest.state = state;
    queue->rest.asked_at = now;
    put(queue, kind);
}

static bool is_answered(const struct queue *queue)
{
    return queue->rest_answer.number == queue->side_requests.rest_number;
}

/* Nothing more is asked, and the locks are given back. */
static void stay_awake(struct queue *queue, instant_us try_at)
{
    struct rest *rest = &queue->rest;
    rest->state = REST_AWAKE;
    rest->try_at = try_at;
    queue->side_requests.rest = REST_ASKS_NOTHING;
    queue->side_requests.rest_number++; /* an answer that is under way is nobody's */
    if (rest->lock == REST_LOCKED)
        rest->lock = REST_UNLOCK_WANTED;
    else if (rest->lock == REST_LOCK_WANTED)
        rest->lock = REST_UNLOCKED;
}

static void says_it_wakes(const struct queue *queue, const char *reason, instant_us now)
{
    report_wakes(queue, reason, now - queue->rest.asked_at);
    FAULT_POINT("rest.wakes");
}

static void wake(struct queue *queue, const char *reason, instant_us now)
{
    if (queue->rest.state == REST_RESTING)
        says_it_wakes(queue, reason, now);
    stay_awake(queue, now);
    queue->rest.busy_at = now;
    pace_wake(queue, now);
}

/* The locks are held on, and an answer that is under way is nobody's. */
static void rouse(struct queue *queue, instant_us now)
{
    struct rest *rest = &queue->rest;
    if (rest->state == REST_RESTING)
        says_it_wakes(queue, "notified", now);
    if (rest->state != REST_ROUSED)
        rest->roused_at = now;
    rest->state = REST_ROUSED;
    rest->busy_at = now;
    queue->side_requests.rest = REST_ASKS_NOTHING;
    queue->side_requests.rest_number++;
    pace_wake(queue, now);
}

void rest_notified(struct queue *queue, bool of_events, instant_us now)
{
    struct rest *rest = &queue->rest;
    bool looks = rest->state == REST_LOOKING || rest->state == REST_RESTING || rest->state == REST_ROUSED;
    if (looks && of_events && is_calm(rest, REST_FINDS_MAX, now))
        rouse(queue, now);
    else
        wake(queue, "notified", now);
}

void rest_lost(struct queue *queue, instant_us now)
{
    enum rest_state state = queue->rest.state;
    if (state == REST_WAITING || state == REST_LOOKING || state == REST_RESTING || state == REST_ROUSED) {
        queue->ordering->type->forget(queue->ordering);
        side_requests_probe(&queue->side_requests); /* the server may have lost its last transactions */
        wake(queue, "connection lost", now);
    }
    if (queue->rest.lock == REST_LOCK_WANTED)
        return; /* the next connection will do */
    if (queue->rest.state == REST_LOCKING)
        stay_awake(queue, now);
    queue->rest.lock = REST_UNLOCKED;
}

void rest_lock_moved(struct queue *queue, bool asked)
{
    queue->rest.lock =
        asked ? queue->rest.lock == REST_LOCK_WANTED ? REST_LOCK_ASKED : REST_UNLOCK_ASKED : REST_UNLOCKED;
}

void rest_lock_answered(struct queue *queue, bool locked, int backend_pid, int64_t number)
{
    struct rest *rest = &queue->rest;
    rest->backend_pid = backend_pid;
    rest->number = number;
    rest->lock = !locked ? REST_UNLOCKED : rest->state == REST_LOCKING ? REST_LOCKED : REST_UNLOCK_WANTED;
}

static bool has_work(const struct queue *queue, instant_us now)
{
    bool closed = is_closed(queue);
    for (size_t i = 0; i < queue->claim_count; i++)
        if (queue->claims[i].state != CLAIM_IDLE)
            return true;
    return !queue->side_status.connected || is_busy(queue, now) || (!closed && queue->pace.poll_at <= now);
}

void rest_hear(struct queue *queue, instant_us now)
{
    struct rest *rest = &queue->rest;
    if (rest->state != REST_RESTING || queue->stopping)
        return;
    if (has_work(queue, now))
        wake(queue, "work", now);
    else if (now >= rest->until)
        wake(queue, "due", now);
}

/* ---- on the way to rest ---- */

static void lock(struct queue *queue)
{
    queue->rest.state = REST_LOCKING;
    queue->rest.lock = REST_LOCK_WANTED;
}

static void begin(struct queue *queue, instant_us now)
{
    struct rest *rest = &queue->rest;
    if (now < rest->busy_at + IDLE_US || now < rest->try_at || rest->lock != REST_UNLOCKED || !is_quiet(queue, now) ||
        !is_calm(rest, CALM_FINDS, now))
        return;
    if (now < rest->may_until)
        lock(queue);
    else
        ask(queue, REST_ASKS_WRITERS, REST_ASKING, now);
}

/* A lost connection comes back soon; what else makes a question fail does not pass so quickly. */
static instant_us after_failure(const struct queue *queue, instant_us now)
{
    return now + (queue->side_status.connected ? MAY_US : CALM_US);
}

/* False: not for now. */
static bool take_may(struct queue *queue, instant_us now)
{
    const struct rest_answer *answer = &queue->rest_answer;
    struct rest *rest = &queue->rest;
    rest->may_until = answer->failed || !answer->may ? 0 : now + MAY_US;
    if (rest->may_until == 0)
        stay_awake(queue, answer->failed ? after_failure(queue, now) : now + MAY_US);
    if (!answer->failed && !answer->may)
        report_stays_awake(queue, answer->obstacle);
    return rest->may_until != 0;
}

static void take_writers(struct queue *queue, instant_us now)
{
    struct rest *rest = &queue->rest;
    if (rest->ask_again_at > 0 && now >= rest->ask_again_at) {
        rest->ask_again_at = 0;
        ask(queue, REST_ASKS_LEFT, REST_WAITING, now);
        return;
    }
    if (rest->ask_again_at > 0 || !is_answered(queue) || !take_may(queue, now))
        return;
    if (!queue->rest_answer.held) {
        report_stays_awake(queue, "listen_database is another database, or another server");
        stay_awake(queue, now + MAY_US);
    } else if (queue->rest_answer.writers) {
        rest->ask_again_at = now + rest->pause_us;
        rest->pause_us = lesser(rest->pause_us * 2, PAUSE_MAX_US);
    } else {
        rest->family = queue->rest_answer.family;
        ask(queue, REST_ASKS_LOOK, REST_LOOKING, now);
    }
}

/* Whoever wants fewer statements says so by `poll.max`. */
int64_t rest_check_us(const struct queue *queue)
{
    if (FAULT_ERROR("rest.check"))
        return SECOND_US;
    return queue->config->poll_max_us > CHECK_MIN_US ? queue->config->poll_max_us : CHECK_MIN_US;
}

/* A table of the same name may be another one by now, or have got a partition with rows, or its trigger may be
 * disabled: then events come and nobody notifies. */
static void check_that_it_may(struct queue *queue, instant_us now)
{
    const struct rest_answer *answer = &queue->rest_answer;
    struct rest *rest = &queue->rest;
    if (now >= rest->check_at && rest->check_at != INSTANT_NEVER) {
        rest->check_at = INSTANT_NEVER;
        put(queue, REST_ASKS_WRITERS);
    } else if (rest->check_at == INSTANT_NEVER && is_answered(queue)) {
        rest->check_at = now + rest_check_us(queue);
        if (answer->failed || !answer->may || !answer->held || answer->family != rest->family) {
            rest->may_until = 0;
            wake(queue, "may rest no longer", now);
        }
    }
}

/* A claim since then may have found what the look has not seen, or have lost it again. */
static bool has_claimed_since(const struct queue *queue, instant_us at)
{
    for (size_t i = 0; i < queue->claim_count; i++)
        if (queue->claims[i].sent_at >= at)
            return true;
    return false;
}

static void take_look(struct queue *queue, instant_us now)
{
    const struct rest_answer *answer = &queue->rest_answer;
    struct rest *rest = &queue->rest;
    if (!is_answered(queue))
        return;
    int64_t took_us = now - rest->asked_at;
    if (answer->failed) {
        stay_awake(queue, after_failure(queue, now));
        return;
    }
    if (!is_quiet(queue, now) || has_claimed_since(queue, rest->asked_at)) {
        stay_awake(queue, now + REFUSED_US);
        return;
    }
    bool due = answer->due && answer->due_us <= 0;
    if (due || (answer->waiting && !answer->idle)) {
        stay_awake(queue, now + (took_us * LOOK_PART > rest->left_us ? took_us * LOOK_PART : rest->left_us));
        rest->left_us = lesser(rest->left_us * 2, LEFT_MAX_US);
        return;
    }
    instant_us until = now + (FAULT_ERROR("rest.until") ? SECOND_US : REST_MAX_US);
    if (answer->due)
        until = instant_min(until, now + lesser(answer->due_us, REST_MAX_US));
    until = instant_min(until, upkeep_rest_until(queue));
    rest->until = instant_min(until, queue->ordering->type->pending_at(queue->ordering));
    rest->asked_at = now;
    rest->check_at = now + rest_check_us(queue);
    rest->state = REST_RESTING;
    pace_poll_at(&queue->pace, INSTANT_NEVER);
    report_rests(queue, rest->until - now);
}

/* Whoever wrote before the locks were taken has ended, and whoever has written since has notified: a look is enough. */
static void look_again(struct queue *queue, instant_us now)
{
    if (now >= queue->rest.roused_at + ROUSED_US)
        stay_awake(queue, now);
    else if (!is_busy(queue, now) && is_quiet(queue, now))
        ask(queue, REST_ASKS_LOOK, REST_LOOKING, now);
}

void rest_step(struct queue *queue, instant_us now)
{
    struct rest *rest = &queue->rest;
    if (rest->never || queue->stopping)
        return;
    note_finds(queue, now);
    if (is_busy(queue, now)) {
        rest->busy_at = now;
        rest->left_us = SECOND_US;
        if (rest->state == REST_LOOKING && is_calm(rest, REST_FINDS_MAX, now))
            rouse(queue, now);
        else if (rest->state != REST_AWAKE && rest->state != REST_RESTING && rest->state != REST_ROUSED)
            stay_awake(queue, now);
    }
    switch (rest->state) {
    case REST_AWAKE:
        begin(queue, now);
        break;
    case REST_ASKING:
        if (is_answered(queue) && take_may(queue, now))
            lock(queue);
        break;
    case REST_LOCKING:
        rest->pause_us = PAUSE_MIN_US;
        rest->ask_again_at = 0;
        if (rest->lock == REST_LOCKED)
            ask(queue, REST_ASKS_WRITERS, REST_WAITING, now);
        else if (rest->lock == REST_UNLOCKED)
            stay_awake(queue, now + REFUSED_US);
        break;
    case REST_WAITING:
        take_writers(queue, now);
        break;
    case REST_LOOKING:
        take_look(queue, now);
        break;
    case REST_ROUSED:
        look_again(queue, now);
        break;
    case REST_RESTING:
        check_that_it_may(queue, now);
        break;
    }
}

static instant_us next_step_at(const struct queue *queue, instant_us now)
{
    const struct rest *rest = &queue->rest;
    switch (rest->state) {
    case REST_AWAKE: {
        instant_us at = rest->busy_at + IDLE_US > rest->try_at ? rest->busy_at + IDLE_US : rest->try_at,
                   calm_at = rest->found_at[(rest->finds - CALM_FINDS) % REST_FINDS_MAX] + CALM_US;
        at = at > calm_at ? at : calm_at;
        return at > now ? at : INSTANT_NEVER; /* else it waits for something else than time */
    }
    case REST_ROUSED:
        return rest->roused_at + ROUSED_US;
    case REST_WAITING:
        return rest->ask_again_at > 0 ? rest->ask_again_at : is_answered(queue) ? now : INSTANT_NEVER;
    case REST_ASKING:
    case REST_LOOKING:
        return is_answered(queue) ? now : INSTANT_NEVER;
    case REST_LOCKING:
        return INSTANT_NEVER;
    case REST_RESTING:
        if (rest->check_at == INSTANT_NEVER && is_answered(queue))
            return now;
        return instant_min(rest->until, rest->check_at);
    }
    return INSTANT_NEVER;
}

void rest_prepare(struct queue *queue, struct pollset *ps, instant_us now)
{
    if (!queue->rest.never && !queue->stopping)
        pollset_deadline(ps, next_step_at(queue, now));
}
