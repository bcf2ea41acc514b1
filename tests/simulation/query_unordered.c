/* What lock_events.sql does: look at a stretch of ids or priorities, choose events and lock them one by one, as rows or
 * by their ids. */
#include "tests/simulation/judge.h"
#include "tests/simulation/result.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LOW_TEXT_MAX 64

/* A row that was found. */
struct candidate {
    const struct row *row;
    bool free, tried, locked, cut;
};

static struct {
    struct backend *backend;
    const struct call *call;
    struct candidate all[ROWS_MAX];
    size_t count;
    int64_t room, rows; /* events that may be locked, and rows that may be looked at */
} choice;

/* ---- locks ---- */

/* FOR UPDATE SKIP LOCKED */
static bool lock_row(struct backend *backend, struct row *row)
{
    if (!row || !query_sees(backend, &row->version) ||
        store_contested(&sim.store, &row->version, backend->txn) != TXN_NONE ||
        !store_is_live(&sim.store, &row->version, backend->txn))
        return false;
    if (store_is_locked(&sim.store, &row->version))
        judge_violation("G5", row, "a transaction claims event %d, which it has claimed already", (int)row->id);
    store_lock_version(&row->version, backend->txn);
    return true;
}

/* There is no row to lock of an event that waited and is gone. It may have been put back since: then an older version
 * of its row is what the snapshot shows. */
static bool is_gone(const struct backend *backend, const struct row *row)
{
    return !row || (!query_sees(backend, &row->version) && !store_is_live(&sim.store, &row->version, backend->txn));
}

bool query_lock_event(struct backend *backend, int64_t id)
{
    struct row *row = store_find_row(&sim.store, id);
    if (sim.plan.lock_rows)
        return lock_row(backend, row) || is_gone(backend, row);
    int64_t name = query_lock_name(KEY_NONE_SIM, id);
    int index = (int)(backend - server_backend(0));
    if (sim.plan.lock_names == 0 && store_is_kept(&sim.store, name, index))
        judge_violation("G5", row, "a session claims an event that it keeps: it is given the lock once more");
    return store_try_lock(&sim.store, name, index, false);
}

/* ---- what is found ---- */

static bool has(const struct list *list, int64_t value)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->values[i] == value)
            return true;
    return false;
}

static bool is_free(const struct row *row)
{
    return !has(&choice.call->lists[6], row->id) && !has(&choice.backend->claim_keyless_ids, row->id) &&
           !query_find_wait(choice.backend, KEY_NONE_SIM, row->id);
}

/* A null priority is the least. */
static bool is_in_stretch(const struct row *row)
{
    const int64_t *n = choice.call->n;
    bool ranked = row->priority != PRIORITY_NONE && row->id >= n[1] && row->id >= n[8] && is_free(row);
    switch (choice.call->query) {
    case QUERY_LOCK_TOP:
        return ranked && row->priority == n[0];
    case QUERY_LOCK_BELOW:
        return ranked && row->priority < n[0];
    case QUERY_LOCK_URGENT:
        return row->id >= n[0] && row->id <= n[1] && row->priority >= n[9];
    default:
        return row->id >= n[0] && row->id <= n[1];
    }
}

static int compare_ids(const void *a, const void *b)
{
    const struct row *x = ((const struct candidate *)a)->row, *y = ((const struct candidate *)b)->row;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int compare_newest(const void *a, const void *b)
{
    return compare_ids(b, a);
}

static int compare_urgency(const void *a, const void *b)
{
    const struct row *x = ((const struct candidate *)a)->row, *y = ((const struct candidate *)b)->row;
    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    return compare_ids(a, b);
}

static void sort(int (*compare)(const void *a, const void *b))
{
    qsort(choice.all, choice.count, sizeof choice.all[0], compare);
}

/* The nearest to its end, then in the order of their places. */
static void find(void)
{
    enum query query = choice.call->query;
    bool by_rank = query == QUERY_LOCK_TOP || query == QUERY_LOCK_BELOW;
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        if (query_sees_row(choice.backend, row) && is_in_stretch(row))
            choice.all[choice.count++] = (struct candidate){.row = row, .free = is_free(row)};
    }
    sort(by_rank ? compare_urgency : query == QUERY_LOCK_LOWEST ? compare_ids : compare_newest);
    if ((int64_t)choice.count > choice.rows)
        choice.count = (size_t)choice.rows;
    sort(by_rank || query == QUERY_LOCK_URGENT ? compare_urgency : compare_ids);
}

/* ---- the section ---- */

static void lock_in_order(void)
{
    struct list *ids = &choice.backend->claim_keyless_ids, before = *ids;
    *ids = (struct list){.values = arena_array(sim.arena, before.count + choice.count, sizeof(int64_t)),
                         .count = before.count};
    if (before.count > 0)
        memcpy(ids->values, before.values, before.count * sizeof(int64_t));
    for (size_t i = 0; i < choice.count; i++) {
        struct candidate *c = &choice.all[i];
        c->cut = c->free && choice.room == 0;
        c->tried = c->free && !c->cut;
        if (!c->tried)
            continue;
        c->locked = query_lock_event(choice.backend, c->row->id);
        TRACE("  lock event %d %s", (int)c->row->id, c->locked ? "taken" : "missed");
        if (c->locked)
            ids->values[ids->count++] = c->row->id;
        choice.room -= c->locked;
    }
}

enum which { ALL, MISSED, CUT };

/* By the id, or by the priority. */
static void put_bounds(PGresult *res, int column, enum which which)
{
    bool any = false, by_rank = choice.call->query == QUERY_LOCK_BELOW && which != MISSED;
    int64_t low = 0, high = 0;
    for (size_t i = 0; i < choice.count; i++) {
        const struct candidate *c = &choice.all[i];
        int64_t value = by_rank ? c->row->priority : c->row->id;
        if (!(which == ALL || (which == CUT ? c->cut : c->tried && !c->locked)))
            continue;
        low = !any || value < low ? value : low;
        high = !any || value > high ? value : high;
        any = true;
    }
    if (!any)
        return;
    result_bigint(res, 0, column, low);
    result_bigint(res, 0, column + 1, high);
}

static void put_low(PGresult *res, int64_t floor)
{
    char *text = arena_alloc(sim.arena, choice.count * LOW_TEXT_MAX + 3), *end = text;
    for (size_t i = 0; i < choice.count; i++) {
        int64_t id = choice.all[i].row->id;
        if (choice.all[i].free && id < floor)
            end += snprintf(end, LOW_TEXT_MAX, "%s\"\",%" PRId64 ",%" PRId64, end == text ? "{" : ",", id, id);
    }
    if (end == text)
        return;
    *end++ = '}';
    result_text(res, 0, 12, text, (size_t)(end - text));
}

static PGresult *summarise(void)
{
    int64_t locked = 0, tried = 0;
    for (size_t i = 0; i < choice.count; i++) {
        locked += choice.all[i].locked;
        tried += choice.all[i].tried;
    }
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 14);
    put_bounds(res, 0, ALL);
    put_bounds(res, 2, MISSED);
    result_bigint(res, 0, 4, locked);
    result_bigint(res, 0, 5, tried);
    put_bounds(res, 6, CUT);
    result_bigint(res, 0, 8, (int64_t)choice.count >= choice.rows);
    query_put_claim(choice.backend, res, 9);
    put_low(res, choice.call->n[8]);
    bool waits = false;
    for (size_t i = 0; i < sim.store.wait_count; i++)
        waits = waits || query_sees(choice.backend, &sim.store.waits[i].version);
    result_bigint(res, 0, 13, waits);
    return res;
}

void query_lock_events(struct backend *backend, const struct call *call)
{
    choice.backend = backend;
    choice.call = call;
    choice.count = 0;
    backend->claim_keys = (struct list){0};
    if (call->n[7] == 0)
        backend->claim_keyless_ids = (struct list){0};
    int64_t left = call->n[4] - (int64_t)backend->claim_keyless_ids.count;
    choice.room = left < call->n[3] ? left : call->n[3];
    choice.room = choice.room > 0 ? choice.room : 0;
    choice.rows = choice.room > 0 ? call->n[2] : 0;
    find();
    lock_in_order();
    server_reply(backend, summarise());
}
