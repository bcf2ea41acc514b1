#include "relay/side/upkeep.h"

#include "ordering/result.h"
#include "relay/deliver/deliver.h"
#include "relay/queue/pace.h"
#include "relay/queue/queue.h"
#include "relay/queue/report.h"
#include "relay/side/serving.h"
#include "relay/side/upkeep_state.h"
#include "sql_text.h"

#include <stdlib.h>

#define LOOK_US (500 * MS_US) /* a pause is obeyed within a second, and a relay that has ended is noticed */
#define LOOK_LEASES 2         /* what a look has found: see paused_look.sql */
#define PURGE_MAX 1000        /* dead letters at a time */
#define FAILED_US (60 * SECOND_US)
#define DUE_US (250 * MS_US)
#define DUE_MAX 10000 /* events at a time */
#define AFTER_US (200 * MS_US)
#define AFTER_MAX 1000 /* events at a time, */
#define WOKEN_MAX 5000 /* and of what waits for them */

/* ---- who serves ---- */

static const char serving_name[] = "serving";

static void bind_serving(const struct queue *queue, struct arena *arena, struct statement *ret)
{
    serving_statement(queue, db_is_shared(queue->side_status.db), arena, ret);
}

/* Until the table is announced again nothing is claimed. No pause is looked for meanwhile, so the queue stays paused.
 */
static void stand_still(struct queue *queue)
{
    queue->upkeep->refused = queue->pause.refused = queue->pause.on = true;
    queue->upkeep->due_at[UPKEEP_LOOK] = INSTANT_NEVER;
}

static void take_serving(struct queue *queue, const PGresult *res, instant_us now)
{
    struct upkeep *upkeep = queue->upkeep;
    struct error other;
    if (!serving_take(queue, res, &other)) {
        stand_still(queue);
        upkeep->due_at[UPKEEP_SERVING] = now + SERVING_REFUSED_US;
        report_upkeep_failed(queue, serving_name, &other);
        return;
    }
    upkeep->due_at[UPKEEP_SERVING] = db_is_shared(queue->side_status.db) ? now + SERVING_AGAIN_US : INSTANT_NEVER;
    if (upkeep->refused)
        upkeep->due_at[UPKEEP_LOOK] = now;
    upkeep->refused = false;
}

/* Behind a pooler it takes a right that a role may do without: table_check() has warned. */
static void serving_failed(struct queue *queue, const struct error *failure)
{
    if (failure->kind == ERROR_PERMISSION)
        queue->upkeep->due_at[UPKEEP_SERVING] = INSTANT_NEVER;
    else
        stand_still(queue);
}

/* ---- pauses ---- */

static void bind_queue(const struct queue *queue, struct arena *arena, struct statement *ret)
{
    (void)arena;
    statement_add_text(ret, queue->config->name);
}

/* With an absent key: all. */
static void stop_key(struct queue *queue, struct span key, instant_us now)
{
    struct holds_walk walk = holds_walk(&queue->holds);
    for (struct batch *batch; (batch = holds_next(&walk));)
        for (struct lane *lane = batch->lanes; lane; lane = lane->next)
            if (lane->state == LANE_OPEN && (!key.data || (lane->key.data && span_equal(lane->key, key))))
                deliver_stop(lane, 0, now);
}

void upkeep_hold(struct queue *queue, instant_us now)
{
    if (queue->pause.on)
        stop_key(queue, (struct span){NULL, 0}, now);
}

/* A claim that has found the queue paused does not know by whom and why: the next look tells. */
void upkeep_hear(struct queue *queue)
{
    struct upkeep *upkeep = queue->upkeep;
    if (queue->pause.found_at == upkeep->found_at)
        return;
    upkeep->found_at = queue->pause.found_at;
    if (!upkeep->logged_paused && !upkeep->refused)
        upkeep->due_at[UPKEEP_LOOK] = upkeep->found_at;
}

static void take_paused(struct queue *queue, const PGresult *res, instant_us now)
{
    bool paused = false;
    if (queue->upkeep->refused)
        return;
    for (int row = 0; row < PQntuples(res); row++) {
        int64_t due;
        if (result_bigint(res, row, 3, &due)) {
            queue->upkeep->due_at[due == LOOK_LEASES ? UPKEEP_LEASES : UPKEEP_SCHEDULE] = now;
            continue;
        }
        struct span key = result_span(res, row, 0);
        if (key.data) {
            stop_key(queue, key, now);
            continue;
        }
        paused = true;
        if (!queue->upkeep->logged_paused)
            report_paused(queue, result_span(res, row, 1), result_span(res, row, 2));
    }
    if (!paused && queue->upkeep->began_at <= queue->upkeep->found_at)
        return; /* it was sent before: the next one will know */
    if (queue->upkeep->logged_paused && !paused)
        report_resumed(queue);
    if (queue->pause.on && !paused)
        pace_poll_at(&queue->pace, now);
    queue->pause.on = queue->upkeep->logged_paused = paused;
    queue->pause.refused = false;
    queue->pause.known = true;
}

/* ---- windows ---- */

static void bind_window(const struct queue *queue, struct arena *arena, struct statement *ret)
{
    (void)arena;
    statement_add_text(ret, queue->config->window);
    statement_add_text(ret, queue->config->window_zone);
}

static void take_window(struct queue *queue, const PGresult *res, instant_us now)
{
    int64_t open = 0;
    result_bigint(res, 0, 0, &open);
    if (queue->window.known && queue->window.closed == !open)
        return;
    queue->window.known = true;
    queue->window.closed = !open;
    report_window(queue);
    if (open)
        pace_poll_at(&queue->pace, now);
}

/* ---- schedules ---- */

static void take_scheduled(struct queue *queue, const PGresult *res, instant_us now)
{
    int64_t inserted = 0, more = 0;
    result_bigint(res, 0, 0, &inserted);
    result_bigint(res, 0, 2, &more);
    struct span failed = result_span(res, 0, 1);
    queue->metrics.scheduled += (uint64_t)inserted;
    if (inserted > 0)
        pace_poll_at(&queue->pace, now);
    if (failed.data)
        report_schedule_failed(queue, failed);
    queue->upkeep->due_at[UPKEEP_SCHEDULE] = more ? now : INSTANT_NEVER;
}

/* ---- what has become due ---- */

static void bind_due(const struct queue *queue, struct arena *arena, struct statement *ret)
{
    ret->sql = guarded_text_of(&queue->sql.due, queue_is_guarded(queue));
    statement_add_text(ret, queue->config->name);
    if (queue->upkeep->due_to > 0)
        statement_add_int(ret, arena, queue->upkeep->due_to);
    else
        statement_add_text(ret, NULL);
    statement_add_int(ret, arena, DUE_MAX);
}

static void take_due(struct queue *queue, const PGresult *res, instant_us now)
{
    int64_t found = 0, looked = 0;
    result_bigint(res, 0, 0, &found);
    result_bigint(res, 0, 1, &looked);
    if (found > 0)
        pace_poll_at(&queue->pace, now);
    bool put_off = looked == queue->upkeep->due_to; /* an entry was locked: not to be asked for all the time */
    if (found < DUE_MAX)
        queue->upkeep->due_to = looked;
    else if (!put_off)
        queue->upkeep->due_at[UPKEEP_DUE] = now;
}

/* ---- what comes after what is done ---- */

static void bind_after(const struct queue *queue, struct arena *arena, struct statement *ret)
{
    ret->sql = guarded_text_of(&queue->sql.after, queue_is_guarded(queue));
    statement_add_text(ret, queue->config->name);
    statement_add_int(ret, arena, queue->upkeep->asked_to);
    statement_add_int(ret, arena, AFTER_MAX);
    statement_add_int(ret, arena, WOKEN_MAX);
}

static void take_after(struct queue *queue, const PGresult *res, instant_us now)
{
    int64_t woken = 0;
    result_bigint(res, 0, 0, &woken);
    if (woken > 0)
        pace_poll_at(&queue->pace, now);
    if (!result_bigint(res, 0, 1, &queue->upkeep->asked_to))
        queue->upkeep->asked_to = EVENT_NO_ID;
    if (woken >= WOKEN_MAX)
        queue->upkeep->due_at[UPKEEP_AFTER] = now;
}

/* ---- leases whose relay has ended ---- */

static void take_ownerless(struct queue *queue, const PGresult *res, instant_us now)
{
    int64_t ended = 0;
    result_bigint(res, 0, 0, &ended);
    queue->upkeep->due_at[UPKEEP_LEASES] = INSTANT_NEVER;
    if (ended == 0)
        return;
    report_ownerless(queue, (uint64_t)ended);
    pace_poll_at(&queue->pace, now);
}

/* ---- archive and dead letters, older than their retention ---- */

static void bind_expire(const struct queue *queue, struct arena *arena, struct statement *ret)
{
    statement_add_text(ret, queue->config->name);
    if (queue->config->archive_retention_us > 0)
        statement_add_int(ret, arena, queue->config->archive_retention_us);
    else
        statement_add_text(ret, NULL);
}

static void take_expired(struct queue *queue, const PGresult *res, instant_us now)
{
    int64_t again_us;
    struct span removed = result_span(res, 0, 0);
    if (removed.data) {
        queue->metrics.removed++;
        report_removed(queue, removed);
    }
    if (result_bigint(res, 0, 1, &again_us))
        queue->upkeep->due_at[UPKEEP_EXPIRE] = now + again_us;
}

static void bind_purge(const struct queue *queue, struct arena *arena, struct statement *ret)
{
    ret->sql = queue->sql.purge;
    statement_add_text(ret, queue->config->name);
    statement_add_int(ret, arena, queue->config->dead_retention_us);
    statement_add_int(ret, arena, PURGE_MAX);
}

static void take_purged(struct queue *queue, const PGresult *res, instant_us now)
{
    struct upkeep *upkeep = queue->upkeep;
    int64_t purged = 0;
    result_bigint(res, 0, 0, &purged);
    queue->metrics.purged += (uint64_t)purged;
    upkeep->purged += (uint64_t)purged;
    if (purged == PURGE_MAX) {
        upkeep->due_at[UPKEEP_PURGE] = now + SECOND_US;
    } else if (upkeep->purged > 0) {
        report_purged(queue, upkeep->purged);
        upkeep->purged = 0;
    }
}

/* ---- the tasks ---- */

static bool every_queue(const struct queue *queue)
{
    return !queue->config->state; /* without the schema outbox there is nobody who could pause it */
}

static bool lets_pass(const struct queue *queue)
{
    return queue->config->columns.not_before && queue->config->delayed == DELAYED_PASS;
}

static bool comes_after(const struct queue *queue)
{
    return queue->sql.after.plain != NULL;
}

static bool has_window(const struct queue *queue)
{
    return queue->config->window != NULL;
}

/* Only when a look has found that there is something to do. */
static bool not_by_itself(const struct queue *queue)
{
    (void)queue;
    return false;
}

static bool archives(const struct queue *queue)
{
    return queue->config->after == AFTER_ARCHIVE;
}

static bool forgets_dead_letters(const struct queue *queue)
{
    return queue->config->dead_retention_us > 0;
}

/* In the order of enum upkeep_task. */
static const struct {
    const char *name, *sql;
    bool before_all; /* does not wait for settlements */
    bool ends_rest;  /* no notification announces that there is something to do: see relay/rest/rest.h */
    int64_t every_us, failed_us;
    bool (*is_wanted)(const struct queue *queue);
    void (*bind)(const struct queue *queue, struct arena *arena, struct statement *ret); /* or NULL */
    void (*take)(struct queue *queue, const PGresult *res, instant_us now);              /* or NULL */
} tasks[UPKEEP_TASKS] = {
    [UPKEEP_SERVING] = {serving_name, NULL, true, false, SERVING_AGAIN_US, SERVING_REFUSED_US, not_by_itself,
                        bind_serving, take_serving},
    [UPKEEP_LOOK] = {"pause", sql_paused_look, true, false, LOOK_US, SECOND_US, every_queue, bind_queue, take_paused},
    [UPKEEP_WINDOW] = {"window", sql_window_look, true, false, LOOK_US, SECOND_US, has_window, bind_window,
                       take_window},
    [UPKEEP_SCHEDULE] = {"schedule", sql_schedule_run, false, true, HOUR_US, FAILED_US, not_by_itself, bind_queue,
                         take_scheduled},
    [UPKEEP_DUE] = {"delayed", NULL, true, false, DUE_US, SECOND_US, lets_pass, bind_due, take_due},
    [UPKEEP_AFTER] = {"after", NULL, true, false, AFTER_US, SECOND_US, comes_after, bind_after, take_after},
    [UPKEEP_LEASES] = {"leases", sql_lease_end_ownerless, true, true, HOUR_US, SECOND_US, not_by_itself, bind_queue,
                       take_ownerless},
    [UPKEEP_DAYS] = {"archive_days", sql_archive_prepare, false, true, HOUR_US, FAILED_US, archives, NULL, NULL},
    [UPKEEP_EXPIRE] = {"archive_retention", sql_archive_expire, false, true, HOUR_US, FAILED_US, archives, bind_expire,
                       take_expired},
    [UPKEEP_PURGE] = {"dead_retention", NULL, false, true, HOUR_US, FAILED_US, forgets_dead_letters, bind_purge,
                      take_purged},
};

void upkeep_open(struct queue *queue)
{
    struct upkeep *upkeep = queue->upkeep = memory_new(sizeof *upkeep);
    queue->pause.known = !every_queue(queue);
    *upkeep = (struct upkeep){.asked_to = EVENT_NO_ID, .found_at = -1};
    queue->pause.found_at = -1;
    queue->window.closed = has_window(queue);
    queue->window.known = !queue->window.closed;
    for (size_t i = 0; i < UPKEEP_TASKS; i++)
        upkeep->due_at[i] = tasks[i].is_wanted(queue) ? 0 : INSTANT_NEVER;
}

void upkeep_close(struct queue *queue)
{
    free(queue->upkeep);
    queue->upkeep = NULL;
}

void upkeep_connected(struct queue *queue, instant_us now)
{
    if (serving_matters(queue->table))
        queue->upkeep->due_at[UPKEEP_SERVING] = now;
}

bool upkeep_next(struct queue *queue, bool before_all, instant_us now)
{
    struct upkeep *upkeep = queue->upkeep;
    for (upkeep->task = 0; upkeep->task < UPKEEP_TASKS; upkeep->task++)
        if (now >= upkeep->due_at[upkeep->task] && tasks[upkeep->task].before_all == before_all)
            return true;
    return false;
}

bool upkeep_reads_rows(const struct queue *queue)
{
    return queue->upkeep->task == UPKEEP_DUE || queue->upkeep->task == UPKEEP_AFTER;
}

struct statement upkeep_begin(struct queue *queue, struct arena *arena, instant_us now)
{
    struct upkeep *upkeep = queue->upkeep;
    upkeep->began_at = now;
    upkeep->due_at[upkeep->task] = now + tasks[upkeep->task].every_us;
    struct statement st = statement_of(tasks[upkeep->task].sql);
    if (tasks[upkeep->task].bind)
        tasks[upkeep->task].bind(queue, arena, &st);
    return st;
}

void upkeep_take(struct queue *queue, const PGresult *res, instant_us now)
{
    if (tasks[queue->upkeep->task].take)
        tasks[queue->upkeep->task].take(queue, res, now);
}

void upkeep_end(struct queue *queue, const struct error *failure, instant_us now)
{
    struct upkeep *upkeep = queue->upkeep;
    instant_us *due_at = &upkeep->due_at[upkeep->task], rested_at = now + (now - upkeep->began_at);
    if (failure)
        *due_at = now + tasks[upkeep->task].failed_us;
    else if (*due_at == upkeep->began_at + tasks[upkeep->task].every_us) /* its answer has not said another time */
        *due_at = now + tasks[upkeep->task].every_us;
    if (*due_at < rested_at)
        *due_at = rested_at;
    if (failure && upkeep->task == UPKEEP_SERVING)
        serving_failed(queue, failure);
    if (failure)
        report_upkeep_failed(queue, tasks[upkeep->task].name, failure);
}

instant_us upkeep_due_at(const struct queue *queue)
{
    instant_us at = INSTANT_NEVER;
    for (size_t i = 0; i < UPKEEP_TASKS; i++)
        at = instant_min(at, queue->upkeep->due_at[i]);
    return at;
}

instant_us upkeep_serving_at(const struct queue *queue)
{
    return queue->upkeep->due_at[UPKEEP_SERVING];
}

bool upkeep_next_at_rest(struct queue *queue, instant_us now)
{
    queue->upkeep->task = UPKEEP_SERVING;
    return now >= upkeep_serving_at(queue);
}

instant_us upkeep_rest_until(const struct queue *queue)
{
    instant_us at = INSTANT_NEVER;
    for (size_t i = 0; i < UPKEEP_TASKS; i++)
        if (tasks[i].ends_rest)
            at = instant_min(at, queue->upkeep->due_at[i]);
    return at;
}
