/* What per_key_lock.sql does, choose keys and lock them, and per_key_lock_all.sql and fresh_lock.sql, lock whatever is
 * found. */
#include "tests/simulation/judge.h"
#include "tests/simulation/result.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

#include <stdlib.h>

#define CANDIDATES_MAX (ROWS_MAX + 64)
#define KEYLESS_LOCKS (INT64_C(1) << 32)

/* A row of the query's `candidate`. */
struct candidate {
    int64_t key, keyless; /* one of them QUERY_NO_ID */
    int64_t low, high, newest_id, oldest_id;
    int64_t place; /* of what was found; QUERY_NO_ID: none */
    uint64_t tie;
    bool locked;
};

/* One of the two under way. */
struct choice {
    const struct backend *backend;
    const struct call *call; /* with the parameters of per_key_lock.sql */
    bool all;                /* it is the other: */
    int64_t room;            /* rows that it looks at; without it, as many as the ends have */
    struct candidate found[CANDIDATES_MAX], ordered[CANDIDATES_MAX];
    size_t found_count, ordered_count, fresh_count, newest_count, oldest_count;
    size_t first_count; /* rows of the first two that are the first of their key, or all of them */
    int64_t newest_min, oldest_max;
};

static struct choice choice;

static int64_t rows_seen(void)
{
    return (int64_t)(choice.fresh_count + choice.newest_count + choice.oldest_count);
}

static bool is_cut(void)
{
    return choice.all && rows_seen() >= choice.room;
}

int64_t query_lock_name(int key, int64_t id)
{
    int64_t name = key == KEY_NONE_SIM ? id : key;
    if (sim.plan.lock_names > 0)
        return name % sim.plan.lock_names;
    return key == KEY_NONE_SIM ? KEYLESS_LOCKS + id : name;
}

static bool has(const struct list *list, int64_t value)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->values[i] == value)
            return true;
    return false;
}

static struct candidate *find_found(const struct row *row)
{
    int64_t key = row->key == KEY_NONE_SIM ? QUERY_NO_ID : row->key,
            keyless = row->key == KEY_NONE_SIM ? row->id : QUERY_NO_ID;
    for (size_t i = 0; i < choice.found_count; i++)
        if (choice.found[i].key == key && choice.found[i].keyless == keyless)
            return &choice.found[i];
    struct candidate *added = &choice.found[choice.found_count++];
    *added = (struct candidate){.key = key,
                                .keyless = keyless,
                                .low = row->id,
                                .high = row->id,
                                .newest_id = QUERY_NO_ID,
                                .oldest_id = QUERY_NO_ID,
                                .place = QUERY_NO_ID};
    return added;
}

/* The `n`th row of an end that has `share` of 100 places. */
static struct candidate *note_found(const struct row *row, size_t n, int64_t share, bool last)
{
    struct candidate *c = find_found(row);
    c->low = row->id < c->low ? row->id : c->low;
    c->high = row->id > c->high ? row->id : c->high;
    int64_t place = share > 0 ? (int64_t)n * 100 / share + (last ? 1000000 : 0) : QUERY_NO_ID;
    if (share > 0 && (c->place == QUERY_NO_ID || place < c->place))
        c->place = place;
    return c;
}

/* $16 is a null: 0 here, which is no id. */
static bool asks_for_the_first(void)
{
    return choice.call->n[15] != 0;
}

static bool is_first(const struct row *row)
{
    const struct store *store = &sim.store;
    if (!asks_for_the_first() || row->key == KEY_NONE_SIM)
        return true;
    for (size_t i = 0; i < store->row_count && store->rows[i].id < row->id; i++)
        if (store->rows[i].key == row->key && store->rows[i].id >= choice.call->n[15] &&
            query_sees_row(choice.backend, &store->rows[i]))
            return false;
    return true;
}

static struct candidate *note_newest(const struct row *row)
{
    bool first = is_first(row);
    choice.first_count += first;
    return note_found(row, choice.first_count, 100 - choice.call->n[7], !first);
}

static void look_at_the_newest(void)
{
    const int64_t *n = choice.call->n, limit = n[5];
    const struct store *store = &sim.store;
    for (size_t i = store->row_count; i-- > 0 && (int64_t)choice.fresh_count < limit && !is_cut();) {
        const struct row *row = &store->rows[i];
        if (row->id <= n[0] || !query_sees_row(choice.backend, row))
            continue;
        note_newest(row);
        choice.fresh_count++;
    }
    for (size_t i = store->row_count; i-- > 0 && (int64_t)choice.newest_count < limit && !is_cut();) {
        const struct row *row = &store->rows[i];
        if (row->id < n[1] || row->id > n[2] || !query_sees_row(choice.backend, row))
            continue;
        struct candidate *c = note_newest(row);
        choice.newest_count++;
        c->newest_id = c->newest_id > row->id ? c->newest_id : row->id;
        choice.newest_min = row->id;
    }
}

static void look_at_the_oldest(void)
{
    const int64_t *n = choice.call->n;
    const struct store *store = &sim.store;
    for (size_t i = 0; i < store->row_count && (int64_t)choice.oldest_count < n[14] && !is_cut(); i++) {
        const struct row *row = &store->rows[i];
        if (row->id < n[3] || row->id > n[4] || !query_sees_row(choice.backend, row))
            continue;
        struct candidate *c = note_found(row, ++choice.oldest_count, n[7], false);
        c->oldest_id = c->oldest_id == QUERY_NO_ID ? row->id : c->oldest_id;
        choice.oldest_max = row->id;
    }
}

static void add_candidate(const struct candidate *from, int64_t place)
{
    struct candidate *c = &choice.ordered[choice.ordered_count++];
    *c = *from;
    c->place = place;
    c->tie = rng_next(&sim.rng); /* nobody has promised an order among equals */
}

static const struct candidate unknown = {.key = QUERY_NO_ID,
                                         .keyless = QUERY_NO_ID,
                                         .low = QUERY_NO_ID,
                                         .high = QUERY_NO_ID,
                                         .newest_id = QUERY_NO_ID,
                                         .oldest_id = QUERY_NO_ID};

static bool is_added(const struct wait *wait)
{
    for (size_t i = 0; i < choice.ordered_count; i++) {
        const struct candidate *c = &choice.ordered[i];
        if (wait->key == KEY_NONE_SIM ? c->keyless == wait->head : c->key == wait->key)
            return true;
    }
    return false;
}

static bool is_due(const struct wait *wait)
{
    const struct call *call = choice.call;
    bool busy = wait->key == KEY_NONE_SIM ? has(&call->lists[9], wait->head) : has(&call->lists[8], wait->key);
    return wait->next_at <= choice.backend->started_at && !busy && query_sees(choice.backend, &wait->version) &&
           !is_added(wait);
}

/* Waits that are over, soonest first, up to a quarter of the claim. */
static void add_waits(void)
{
    int64_t most = choice.call->n[6] / 4 > 1 ? choice.call->n[6] / 4 : 1,
            places = choice.call->n[6] - (int64_t)choice.call->lists[10].count;
    most = choice.all && places < most ? places : most;
    for (int64_t n = 0; n < most; n++) {
        const struct wait *next = NULL;
        for (size_t i = 0; i < sim.store.wait_count; i++) {
            const struct wait *wait = &sim.store.waits[i];
            if (is_due(wait) && (!next || wait->next_at < next->next_at))
                next = wait;
        }
        if (!next)
            return;
        struct candidate c = unknown;
        *(next->key == KEY_NONE_SIM ? &c.keyless : &c.key) = next->key == KEY_NONE_SIM ? next->head : next->key;
        add_candidate(&c, choice.call->n[13] ? 1000000001 : -1);
    }
}

static void add_followed(void)
{
    const struct list *follow = &choice.call->lists[10];
    for (size_t i = 0; i < follow->count; i++) {
        struct candidate c = unknown;
        c.key = follow->values[i];
        if (!query_find_wait(choice.backend, c.key, QUERY_NO_ID))
            add_candidate(&c, -2);
    }
}

static bool is_ready(const struct candidate *c)
{
    const struct list *lists = choice.call->lists;
    bool left_out =
        c->keyless == QUERY_NO_ID ? has(&lists[8], c->key) || has(&lists[10], c->key) : has(&lists[9], c->keyless);
    return !left_out && !query_find_wait(choice.backend, c->key, c->keyless);
}

static void add_ready(void)
{
    for (size_t i = 0; i < choice.found_count; i++) {
        const struct candidate *c = &choice.found[i];
        if (is_ready(c))
            add_candidate(c, c->place == QUERY_NO_ID ? 1000000000 : c->place);
    }
}

static int compare_places(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->tie < y->tie ? -1 : x->tie > y->tie;
}

/* With room for all that may be locked. */
static struct list empty_list(void)
{
    return (struct list){.values = arena_array(sim.arena, choice.ordered_count, sizeof(int64_t))};
}

static void lock_chosen(struct backend *backend)
{
    backend->claim_keys = empty_list();
    backend->claim_keyless_ids = empty_list();
    int backend_index = (int)(backend - server_backend(0));
    for (size_t i = 0; i < choice.ordered_count && (int64_t)i < choice.call->n[6]; i++) {
        struct candidate *c = &choice.ordered[i];
        int key = c->keyless == QUERY_NO_ID ? (int)c->key : KEY_NONE_SIM;
        int64_t name = query_lock_name(key, c->keyless);
        if (sim.plan.lock_names == 0 && store_is_kept(&sim.store, name, backend_index))
            judge_violation("G5", NULL, "a session claims a key that it keeps: it is given the lock once more");
        c->locked = store_try_lock(&sim.store, name, backend_index, false);
        if (c->locked && c->keyless == QUERY_NO_ID)
            backend->claim_keys.values[backend->claim_keys.count++] = c->key;
        else if (c->locked)
            backend->claim_keyless_ids.values[backend->claim_keyless_ids.count++] = c->keyless;
        TRACE("  lock %s%d %s", c->keyless == QUERY_NO_ID ? "k" : "event ",
              (int)(c->keyless == QUERY_NO_ID ? c->key : c->keyless), c->locked ? "taken" : "missed");
    }
}

static size_t list_missed(const struct candidate **ret)
{
    size_t n = 0;
    for (size_t i = 0; i < choice.ordered_count && (int64_t)i < choice.call->n[6]; i++) {
        const struct candidate *c = &choice.ordered[i];
        if (!c->locked || (asks_for_the_first() && c->high > c->low))
            ret[n++] = c;
    }
    for (size_t i = 0; i < choice.found_count; i++)
        if (choice.found[i].keyless == QUERY_NO_ID && has(&choice.call->lists[8], choice.found[i].key))
            ret[n++] = &choice.found[i];
    return n;
}

static void widen(int64_t *low, int64_t *high, const struct candidate *c)
{
    if (c->low == QUERY_NO_ID)
        return;
    *low = *low == QUERY_NO_ID || c->low < *low ? c->low : *low;
    *high = c->high > *high ? c->high : *high;
}

static void put_id(PGresult *res, int row, int column, int64_t id)
{
    if (id != QUERY_NO_ID)
        result_bigint(res, row, column, id);
}

static void put_missed(PGresult *res, int row, const struct candidate *c)
{
    result_key(res, row, 8, c->key);
    put_id(res, row, 11, c->low);
    put_id(res, row, 12, c->high);
}

/* What the first half leaves for the second, as text. */
static const char *claim_text(const struct backend *backend)
{
    char *out = arena_alloc(sim.arena, backend->claim_keys.count * KEY_TEXT_MAX + 3), *p = out;
    *p++ = '{';
    for (size_t i = 0; i < backend->claim_keys.count; i++) {
        p += key_text(p, backend->claim_keys.values[i]);
        *p++ = ',';
    }
    p -= backend->claim_keys.count > 0;
    *p = '}';
    return out;
}

/* No entry covers what was seen of it, nor was it left behind. */
static bool is_bare(const struct candidate *c)
{
    int64_t least = query_left_behind(choice.call, 17, c->key, c->keyless);
    if (least != QUERY_NO_ID && least <= c->low)
        return false;
    const struct wait *wait = query_find_wait(choice.backend, c->key, c->keyless);
    return !wait || wait->head > c->low;
}

static PGresult *summarise(void)
{
    static const struct candidate *missed[2 * CANDIDATES_MAX];
    size_t missed_count = list_missed(missed);
    const int64_t *n = choice.call->n;
    int64_t newest_left = QUERY_NO_ID, oldest_left = QUERY_NO_ID, missed_min = QUERY_NO_ID, missed_max = QUERY_NO_ID,
            seen_min = QUERY_NO_ID, seen_max = QUERY_NO_ID, bare_min = QUERY_NO_ID, bare_max = QUERY_NO_ID, locked = 0;
    for (size_t i = 0; i < choice.ordered_count; i++) {
        const struct candidate *c = &choice.ordered[i];
        if ((int64_t)i < n[6]) {
            locked += c->locked;
            if (!c->locked)
                widen(&missed_min, &missed_max, c);
            continue;
        }
        newest_left = c->newest_id > newest_left ? c->newest_id : newest_left;
        if (c->oldest_id != QUERY_NO_ID && (oldest_left == QUERY_NO_ID || c->oldest_id < oldest_left))
            oldest_left = c->oldest_id;
    }
    if (newest_left == QUERY_NO_ID && ((int64_t)choice.newest_count >= n[5] || is_cut()))
        newest_left = choice.newest_count > 0 ? choice.newest_min - 1 : n[2];
    if (oldest_left == QUERY_NO_ID && ((int64_t)choice.oldest_count >= n[14] || is_cut()))
        oldest_left =
            choice.oldest_count > 0 ? choice.oldest_max + 1 : n[3] + (n[3] == QUERY_NO_ID); /* no row has it */
    for (size_t i = 0; i < choice.found_count; i++) {
        widen(&seen_min, &seen_max, &choice.found[i]);
        if (choice.found[i].low < n[16] && is_bare(&choice.found[i]))
            widen(&bare_min, &bare_max, &choice.found[i]);
    }
    bool cut = choice.all ? is_cut()
                          : (int64_t)choice.fresh_count >= n[5] || (int64_t)choice.newest_count >= n[5] ||
                                (int64_t)choice.oldest_count >= n[14];
    int64_t enough = choice.all ? n[6] - n[6] / 8 : n[6];
    const char *claimed = claim_text(choice.backend);
    int rows = missed_count > 0 ? (int)missed_count : 1;
    PGresult *res = result_new(PGRES_TUPLES_OK, rows, 14);
    for (int row = 0; row < rows; row++) {
        put_id(res, row, 0, newest_left);
        put_id(res, row, 1, oldest_left);
        put_id(res, row, 2, seen_max);
        put_id(res, row, 3, missed_min);
        put_id(res, row, 4, missed_max);
        result_bigint(res, row, 5, locked);
        result_text(res, row, 6, claimed, strlen(claimed));
        if (missed_count > 0 && missed[row]->key != QUERY_NO_ID)
            put_missed(res, row, missed[row]);
        put_id(res, row, 9, seen_min);
        result_bigint(res, row, 10, cut && (int64_t)choice.ordered_count < enough);
        put_id(res, row, 13, bare_min);
    }
    return res;
}

static void begin_choice(const struct backend *backend, const struct call *call)
{
    choice.backend = backend;
    choice.call = call;
    choice.all = false;
    choice.found_count = choice.ordered_count = choice.fresh_count = choice.newest_count = choice.oldest_count =
        choice.first_count = 0;
}

static void end_choice(struct backend *backend)
{
    add_followed();
    add_ready();
    qsort(choice.ordered, choice.ordered_count, sizeof choice.ordered[0], compare_places);
    lock_chosen(backend);
    server_reply(backend, summarise());
}

void query_lock(struct backend *backend, const struct call *call)
{
    begin_choice(backend, call);
    look_at_the_newest();
    look_at_the_oldest();
    add_waits();
    end_choice(backend);
}

void query_lock_all(struct backend *backend, const struct call *call)
{
    struct call same = *call;
    same.n[14] = call->n[7];
    same.n[16] = call->n[11];
    same.lists[10] = call->lists[8];
    same.lists[17] = call->lists[12];
    same.lists[18] = call->lists[13];
    same.n[7] = same.n[13] = same.n[15] = 0;
    same.lists[8] = call->lists[14];
    same.lists[9] = call->lists[15];
    begin_choice(backend, &same);
    choice.all = true;
    add_waits();
    choice.room = same.n[6] - (int64_t)(same.lists[10].count + choice.ordered_count);
    look_at_the_oldest();
    look_at_the_newest();
    for (size_t i = 0; i < choice.found_count; i++)
        choice.found[i].place = 0; /* in no order */
    end_choice(backend);
}

static bool a_wait_is_over(const struct backend *backend)
{
    for (size_t i = 0; i < sim.store.wait_count; i++)
        if (sim.store.waits[i].next_at <= backend->started_at && query_sees(backend, &sim.store.waits[i].version))
            return true;
    return false;
}

/* fresh_lock.sql */
static PGresult *summarise_fresh(const struct backend *backend)
{
    int64_t missed_min = QUERY_NO_ID, missed_max = QUERY_NO_ID, seen_min = QUERY_NO_ID, seen_max = QUERY_NO_ID,
            locked = 0;
    for (size_t i = 0; i < choice.found_count; i++)
        widen(&seen_min, &seen_max, &choice.found[i]);
    for (size_t i = 0; i < choice.ordered_count; i++) {
        locked += choice.ordered[i].locked;
        if (!choice.ordered[i].locked)
            widen(&missed_min, &missed_max, &choice.ordered[i]);
    }
    const char *claimed = claim_text(backend);
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 9);
    put_id(res, 0, 0, seen_min);
    put_id(res, 0, 1, seen_max);
    put_id(res, 0, 2, missed_min);
    put_id(res, 0, 3, missed_max);
    result_bigint(res, 0, 4, locked);
    result_text(res, 0, 5, claimed, strlen(claimed));
    result_bigint(res, 0, 7, (int64_t)choice.fresh_count >= choice.call->n[5]);
    result_bigint(res, 0, 8, a_wait_is_over(backend));
    return res;
}

void query_lock_fresh(struct backend *backend, const struct call *call)
{
    struct call same = {.n = {[0] = call->n[0], [1] = 1, [3] = 1, [5] = call->n[1], [6] = call->n[1]}};
    begin_choice(backend, &same);
    look_at_the_newest();
    add_ready();
    for (size_t i = 0; i < choice.ordered_count; i++)
        choice.ordered[i].place = 0; /* in no order */
    qsort(choice.ordered, choice.ordered_count, sizeof choice.ordered[0], compare_places);
    lock_chosen(backend);
    server_reply(backend, summarise_fresh(backend));
}
