/* What unordered_lock.sql does: choose events and lock them one by one, as rows or by their ids. */
#include "tests/simulation/judge.h"
#include "tests/simulation/result.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

#include <stdlib.h>

#define CANDIDATES_MAX (2 * ROWS_MAX + 64)
#define NOWHERE INT64_C(1000000000)

/* A row of the query's `candidate`. */
struct candidate {
    const struct row *row; /* NULL: of an event that waits and is gone */
    int64_t id;
    int64_t oldest_at; /* its place in `oldest`, from 1 on; 0: it is not in there */
    int64_t place;
    uint64_t tie;
    bool by_id, waited, locked;
};

static struct {
    struct backend *backend;
    const struct call *call;
    struct candidate all[CANDIDATES_MAX];
    size_t count;
    const struct row *top[ROWS_MAX];
    size_t top_count, fresh_count, oldest_count;
    int64_t oldest_max, bare_min, seen_max;
} choice;

static bool sees(const struct row *row)
{
    return query_sees_row(choice.backend, row);
}

static bool is_busy(int64_t id)
{
    const struct list *busy = &choice.call->lists[6];
    for (size_t i = 0; i < busy->count; i++)
        if (busy->values[i] == id)
            return true;
    return false;
}

static bool waits(int64_t id)
{
    return query_find_wait(choice.backend, KEY_NONE_SIM, id) != NULL;
}

static struct candidate *add(const struct row *row, int64_t id)
{
    for (size_t i = 0; row && i < choice.count; i++)
        if (choice.all[i].row == row)
            return &choice.all[i];
    struct candidate *c = &choice.all[choice.count++];
    *c = (struct candidate){.row = row, .id = id, .place = INT64_MAX};
    return c;
}

static struct candidate *note_seen(const struct row *row)
{
    struct candidate *c = add(row, row->id);
    c->by_id = true;
    bool bare = row->id < choice.call->n[11] && !query_find_wait(choice.backend, QUERY_NO_ID, row->id);
    if (bare && (choice.bare_min == QUERY_NO_ID || row->id < choice.bare_min))
        choice.bare_min = row->id;
    choice.seen_max = row->id > choice.seen_max ? row->id : choice.seen_max;
    return c;
}

static void look_by_id(void)
{
    const int64_t *n = choice.call->n;
    const struct store *store = &sim.store;
    for (size_t i = store->row_count; i-- > 0 && (int64_t)choice.fresh_count < n[3];)
        if (store->rows[i].id > n[0] && sees(&store->rows[i])) {
            note_seen(&store->rows[i]);
            choice.fresh_count++;
        }
    for (size_t i = 0; i < store->row_count && (int64_t)choice.oldest_count < n[3]; i++) {
        const struct row *row = &store->rows[i];
        if (row->id < n[1] || row->id > n[2] || !sees(row))
            continue;
        note_seen(row)->oldest_at = (int64_t)++choice.oldest_count;
        choice.oldest_max = row->id;
    }
}

static int compare_urgency(const void *a, const void *b)
{
    const struct row *x = *(const struct row *const *)a, *y = *(const struct row *const *)b;
    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1; /* null is the least */
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Of those that have a priority, from a place in the order of priorities on. */
static void look_at_the_top(void)
{
    const int64_t *n = choice.call->n;
    const struct store *store = &sim.store;
    for (size_t i = 0; sim.plan.priority && i < store->row_count; i++) {
        const struct row *row = &store->rows[i];
        bool here = row->priority < n[9] || (row->priority == n[9] && row->id >= n[10]);
        if (row->priority != PRIORITY_NONE && here && row->id >= n[11] && sees(row) && !is_busy(row->id) &&
            !waits(row->id))
            choice.top[choice.top_count++] = row;
    }
    qsort(choice.top, choice.top_count, sizeof(const struct row *), compare_urgency);
    if ((int64_t)choice.top_count > n[3])
        choice.top_count = (size_t)n[3];
    for (size_t i = 0; i < choice.top_count; i++)
        add(choice.top[i], choice.top[i]->id);
}

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The oldest and the most urgent take turns. */
static void give_places(void)
{
    int64_t share = choice.call->n[5];
    const struct row *urgent[CANDIDATES_MAX];
    for (size_t i = 0; i < choice.count; i++)
        urgent[i] = choice.all[i].row;
    qsort(urgent, choice.count, sizeof(const struct row *), compare_urgency);
    for (size_t i = 0; i < choice.count; i++) {
        struct candidate *c = &choice.all[i];
        int64_t n = 0;
        while (urgent[n++] != c->row)
            ;
        c->place = share < 100 ? n * 100 / (100 - share) : NOWHERE + n;
        if (c->oldest_at > 0)
            c->place = lesser(c->place, share > 0 ? c->oldest_at * 100 / share : NOWHERE + c->oldest_at);
    }
}

static void leave_out_what_waits(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < choice.count; i++)
        if (!is_busy(choice.all[i].id) && !waits(choice.all[i].id))
            choice.all[kept++] = choice.all[i];
    choice.count = kept;
}

static bool is_added(int64_t id)
{
    for (size_t i = 0; i < choice.count; i++)
        if (choice.all[i].id == id)
            return true;
    return false;
}

/* Waits that are over, soonest first, up to a quarter of the claim. */
static void add_waits(void)
{
    int64_t most = choice.call->n[4] / 4 > 1 ? choice.call->n[4] / 4 : 1;
    for (int64_t n = 0; n < most; n++) {
        const struct wait *next = NULL;
        for (size_t i = 0; i < sim.store.wait_count; i++) {
            const struct wait *wait = &sim.store.waits[i];
            if (wait->key == KEY_NONE_SIM && wait->next_at <= choice.backend->started_at && !is_busy(wait->head) &&
                query_sees(choice.backend, &wait->version) && !is_added(wait->head) &&
                (!next || wait->next_at < next->next_at))
                next = wait;
        }
        if (!next)
            return;
        const struct row *row = store_find_row(&sim.store, next->head);
        struct candidate *c = add(row && sees(row) ? row : NULL, next->head);
        c->waited = true;
        c->place = choice.call->n[8] ? 2 * NOWHERE : -1;
    }
}

static int compare_places(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->tie < y->tie ? -1 : x->tie > y->tie;
}

/* FOR UPDATE SKIP LOCKED */
static bool lock_row(const struct candidate *c)
{
    struct row *row = c->row ? store_find_row(&sim.store, c->id) : NULL;
    int txn = choice.backend->txn;
    if (!row || store_contested(&sim.store, &row->version, txn) != TXN_NONE ||
        !store_is_live(&sim.store, &row->version, txn))
        return false;
    if (store_is_locked(&sim.store, &row->version))
        judge_violation("G5", row, "a transaction claims event %d, which it has claimed already", (int)c->id);
    store_lock_version(&row->version, txn);
    return true;
}

static bool lock_id(const struct candidate *c)
{
    int64_t name = query_lock_name(KEY_NONE_SIM, c->id);
    int backend = (int)(choice.backend - server_backend(0));
    if (sim.plan.lock_names == 0 && store_is_kept(&sim.store, name, backend))
        judge_violation("G5", c->row, "a session claims an event that it keeps: it is given the lock once more");
    return store_try_lock(&sim.store, name, backend, false);
}

/* And not put back since: an older version of its row may be what the snapshot shows. */
static bool is_gone(const struct candidate *c)
{
    const struct row *row = store_find_row(&sim.store, c->id);
    return !c->row && !(row && store_is_live(&sim.store, &row->version, choice.backend->txn));
}

/* Returns how many are taken; `ret_stop` is behind the last of them when there was no place for more, else at the end.
 * There is no row to lock of an event that waited and is gone, and it takes no place. */
static int64_t lock_in_order(size_t *ret_stop)
{
    int64_t taken = 0;
    *ret_stop = choice.count;
    for (size_t i = 0; i < choice.count; i++) {
        struct candidate *c = &choice.all[i];
        if (sim.plan.lock_rows && c->waited && is_gone(c)) {
            c->locked = true;
        } else if (taken < choice.call->n[4]) {
            c->locked = sim.plan.lock_rows ? lock_row(c) : lock_id(c);
            TRACE("  lock event %d %s", (int)c->id, c->locked ? "taken" : "missed");
            taken += c->locked;
            if (taken == choice.call->n[4])
                *ret_stop = i + 1;
        }
    }
    return taken;
}

static size_t leave_for_the_second_half(void)
{
    struct list *keyless_ids = &choice.backend->claim_keyless_ids;
    choice.backend->claim_keys = (struct list){0};
    *keyless_ids = (struct list){.values = arena_array(sim.arena, choice.count, sizeof(int64_t))};
    for (size_t i = 0; i < choice.count; i++)
        if (choice.all[i].locked)
            keyless_ids->values[keyless_ids->count++] = choice.all[i].id;
    return keyless_ids->count;
}

static void put_id(PGresult *res, int column, int64_t id)
{
    if (id != QUERY_NO_ID)
        result_bigint(res, 0, column, id);
}

static bool is_left_over(const struct row *row, size_t stop)
{
    for (size_t i = stop; i < choice.count; i++)
        if (choice.all[i].row == row)
            return true;
    return false;
}

/* Where the next claim goes on in the order of priorities. */
static void put_edge(PGresult *res, size_t stop)
{
    for (size_t i = 0; i < choice.top_count; i++)
        if (is_left_over(choice.top[i], stop)) {
            result_bigint(res, 0, 7, choice.top[i]->priority);
            result_bigint(res, 0, 8, choice.top[i]->id);
            return;
        }
    if ((int64_t)choice.top_count < choice.call->n[3] || choice.top_count == 0)
        return;
    result_bigint(res, 0, 7, choice.top[choice.top_count - 1]->priority);
    result_bigint(res, 0, 8, choice.top[choice.top_count - 1]->id + 1);
}

static PGresult *summarise(int64_t taken, size_t stop)
{
    int64_t limit = choice.call->n[3], oldest_left = QUERY_NO_ID, missed_min = QUERY_NO_ID, missed_max = QUERY_NO_ID;
    for (size_t i = 0; i < choice.count; i++) {
        const struct candidate *c = &choice.all[i];
        if (i >= stop && c->oldest_at > 0 && (oldest_left == QUERY_NO_ID || c->id < oldest_left))
            oldest_left = c->id;
        if (i < stop && c->by_id && !c->locked) {
            missed_min = missed_min == QUERY_NO_ID || c->id < missed_min ? c->id : missed_min;
            missed_max = c->id > missed_max ? c->id : missed_max;
        }
    }
    bool oldest_cut = (int64_t)choice.oldest_count >= limit;
    if (oldest_left == QUERY_NO_ID && oldest_cut)
        oldest_left = choice.oldest_max + 1;
    bool cut = oldest_cut || (int64_t)choice.fresh_count >= limit || (int64_t)choice.top_count >= limit;
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 11);
    put_id(res, 0, oldest_left);
    put_id(res, 1, choice.seen_max);
    put_id(res, 2, choice.bare_min);
    put_id(res, 3, missed_min);
    put_id(res, 4, missed_max);
    result_bigint(res, 0, 5, (int64_t)leave_for_the_second_half());
    result_bigint(res, 0, 6, taken < choice.call->n[4] && cut);
    put_edge(res, stop);
    return res;
}

void query_lock_events(struct backend *backend, const struct call *call)
{
    choice.backend = backend;
    choice.call = call;
    choice.count = choice.top_count = choice.fresh_count = choice.oldest_count = 0;
    choice.bare_min = choice.seen_max = QUERY_NO_ID;
    look_by_id();
    look_at_the_top();
    give_places();
    leave_out_what_waits();
    add_waits();
    for (size_t i = 0; i < choice.count; i++)
        choice.all[i].tie = rng_next(&sim.rng);
    qsort(choice.all, choice.count, sizeof choice.all[0], compare_places);
    size_t stop;
    int64_t taken = lock_in_order(&stop);
    server_reply(backend, summarise(taken, stop));
}
