#include "ordering/settler.h"

#include "ordering/result.h"
#include "sql_text.h"

#include <stdlib.h>

static const char *done_of(const struct ordering_options *options)
{
    if (options->hand_on)
        return options->archive ? sql_settle_next_archive : sql_settle_next;
    return options->archive ? sql_settle_archive : sql_settle_delete;
}

static const char *template_of(enum settle_kind kind, const struct ordering_options *options)
{
    const char *const templates[] = {
        [SETTLE_LEASES] = sql_settle_leases,       [SETTLE_PLACED] = done_of(options),
        [SETTLE_DONE] = done_of(options),          [SETTLE_BURY] = sql_settle_bury,
        [SETTLE_UNDELETED] = sql_settle_undeleted, [SETTLE_PARK] = sql_settle_park,
        [SETTLE_UNPARK] = sql_settle_unpark,       [SETTLE_MOVE] = sql_settle_move,
        [SETTLE_GIVE_BACK] = sql_settle_give_back,
    };
    return templates[kind];
}

static bool is_about_leases(enum settle_kind kind)
{
    return kind == SETTLE_LEASES || kind == SETTLE_MOVE || kind == SETTLE_GIVE_BACK;
}

/* What looks at events that were not delivered. */
static bool is_guarded(enum settle_kind kind)
{
    return kind == SETTLE_PARK || kind == SETTLE_UNPARK;
}

static const struct sql_variable *guarded_of(enum settle_kind kind, const struct ordering_options *options)
{
    return is_guarded(kind) ? options->guarded : NULL;
}

/* Where `deleted` stands for :placed, how rows are taken out by their places. free() the result. */
static struct sql_variable *by_place(const struct sql_variable *variables)
{
    size_t count = 0;
    while (variables[count].name)
        count++;
    struct sql_variable *ret = memory_array(count + 2, sizeof *ret);
    memcpy(ret + 1, variables, (count + 1) * sizeof *ret);
    for (size_t i = 0; i < count; i++)
        if (strcmp(variables[i].name, "placed") == 0)
            ret[0] = (struct sql_variable){"deleted", variables[i].text};
    return ret;
}

static bool is_needed(enum settle_kind kind, const struct ordering_options *options)
{
    if (kind == SETTLE_PLACED)
        return options->places;
    return kind != SETTLE_GUARD && (options->lease_us > 0 || !is_about_leases(kind));
}

bool settler_init(struct settler *settler, const struct ordering_options *options, struct error *err)
{
    *settler = (struct settler){
        .queue = options->queue, .lock_class = options->lock_class, .archive = options->archive && !options->hand_on};
    struct sql_variable *placed = by_place(options->variables);
    bool ok = true;
    for (enum settle_kind kind = 0; ok && kind < SETTLE_KINDS; kind++)
        if (is_needed(kind, options))
            ok = guarded_text_init(&settler->texts[kind], template_of(kind, options),
                                   kind == SETTLE_PLACED ? placed : options->variables, guarded_of(kind, options), err);
    free(placed);
    return ok;
}

void settler_done(struct settler *settler)
{
    for (size_t kind = 0; kind < SETTLE_KINDS; kind++)
        guarded_text_done(&settler->texts[kind]);
}

/* The statements of a settlement, in the order they run. */
static size_t settle_kinds(const struct settlement *s, enum settle_kind *ret)
{
    const bool placed = s->tids != NULL;
    const size_t resumed = s->resumed_key_count + s->resumed_keyless_count;
    const bool wanted[] = {
        [SETTLE_GUARD] = s->unreadable_count > 0 && s->parked_count + resumed > 0,
        [SETTLE_LEASES] = s->token_count > 0,
        [SETTLE_PLACED] = s->done_count > 0 && placed,
        [SETTLE_DONE] = s->done_count > 0 && !placed,
        [SETTLE_BURY] = s->buried_count > 0,
        [SETTLE_UNDELETED] = (placed ? 0 : s->done_count) + s->buried_count > 0,
        [SETTLE_PARK] = s->parked_count > 0,
        [SETTLE_UNPARK] = resumed > 0,
        [SETTLE_MOVE] = s->moved_count > 0,
        [SETTLE_GIVE_BACK] = s->released_count > 0,
    };
    size_t n = 0;
    for (size_t kind = 0; kind < SETTLE_KINDS; kind++)
        if (wanted[kind])
            ret[n++] = (enum settle_kind)kind;
    return n;
}

static void add_failures(struct statement *st, struct arena *arena, const struct settle_failure *failures, size_t count,
                         bool parking)
{
    int64_t *ids = arena_array(arena, count, sizeof *ids), *attempts = arena_array(arena, count, sizeof *attempts),
            *delays = arena_array(arena, count, sizeof *delays), *after = arena_array(arena, count, sizeof *after);
    struct span *keys = arena_array(arena, count, sizeof *keys), *whys = arena_array(arena, count, sizeof *whys);
    for (size_t i = 0; i < count; i++) {
        ids[i] = failures[i].id;
        keys[i] = failures[i].key;
        attempts[i] = failures[i].attempts;
        delays[i] = failures[i].delay_us;
        after[i] = failures[i].after_id;
        whys[i] = failures[i].why;
    }
    statement_add_ids(st, arena, ids, count);
    if (parking)
        statement_add_texts(st, arena, keys, count);
    statement_add_ids(st, arena, attempts, count);
    if (parking)
        statement_add_ids(st, arena, delays, count);
    statement_add_texts(st, arena, whys, count);
    if (parking)
        statement_add_ids(st, arena, after, count);
}

struct placed {
    uint64_t tid;
    size_t at; /* of the settlement's arrays */
};

static int by_tid(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* In the order of their places: see deleted_by_place.sql. */
static struct settlement in_order_of_places(const struct settlement *s, struct arena *arena)
{
    struct settlement ret = *s;
    struct placed *rows = arena_array(arena, s->done_count, sizeof *rows);
    int64_t *ids = arena_array(arena, s->done_count, sizeof *ids);
    uint64_t *tids = arena_array(arena, s->done_count, sizeof *tids);
    struct span *responses = s->responses ? arena_array(arena, s->done_count, sizeof *responses) : NULL;
    for (size_t i = 0; i < s->done_count; i++)
        rows[i] = (struct placed){s->tids[i], i};
    qsort(rows, s->done_count, sizeof *rows, by_tid);
    for (size_t i = 0; i < s->done_count; i++) {
        ids[i] = s->done[rows[i].at];
        tids[i] = rows[i].tid;
        if (responses)
            responses[i] = s->responses[rows[i].at];
    }
    ret.done = ids;
    ret.tids = tids;
    ret.responses = responses;
    return ret;
}

static void add_done(struct statement *st, const struct settler *settler, const struct settlement *s,
                     struct arena *arena)
{
    statement_add_ids(st, arena, s->done, s->done_count);
    statement_add_tids(st, arena, s->tids, s->tids ? s->done_count : 0);
    if (settler->archive)
        statement_add_text(st, settler->queue);
    if (s->responses)
        statement_add_bytes(st, arena, s->responses, s->done_count);
}

static struct statement settle_statement(const struct settler *settler, const struct settlement *s, struct arena *arena,
                                         enum settle_kind kind)
{
    if (kind == SETTLE_GUARD)
        return ordering_guard(s->unreadable, s->unreadable_count, arena);
    struct statement st = statement_of(guarded_text_of(&settler->texts[kind], s->unreadable_count > 0));
    struct settlement placed;
    switch (kind) {
    case SETTLE_LEASES:
        statement_add_texts(&st, arena, s->tokens, s->token_count);
        statement_add_int(&st, arena, settler->lock_class);
        break;
    case SETTLE_PLACED:
        placed = in_order_of_places(s, arena);
        add_done(&st, settler, &placed, arena);
        break;
    case SETTLE_DONE:
        add_done(&st, settler, s, arena);
        break;
    case SETTLE_BURY:
        statement_add_text(&st, settler->queue);
        add_failures(&st, arena, s->buried, s->buried_count, false);
        break;
    case SETTLE_UNDELETED:
        statement_add_ids(&st, arena, s->done, s->done_count + s->buried_count);
        break;
    case SETTLE_PARK:
        statement_add_text(&st, settler->queue);
        add_failures(&st, arena, s->parked, s->parked_count, true);
        statement_add_texts(&st, arena, s->tokens, s->token_count);
        break;
    case SETTLE_UNPARK:
        statement_add_text(&st, settler->queue);
        statement_add_texts(&st, arena, s->resumed_keys, s->resumed_key_count);
        statement_add_ids(&st, arena, s->resumed_keyless_ids, s->resumed_keyless_count);
        statement_add_texts(&st, arena, s->tokens, s->token_count);
        break;
    case SETTLE_MOVE:
        statement_add_texts(&st, arena, s->moved_tokens, s->moved_count);
        statement_add_ids(&st, arena, s->moved_ids, s->moved_count);
        break;
    default:
        statement_add_texts(&st, arena, s->released_tokens, s->released_count);
        break;
    }
    return st;
}

size_t settler_settle(const struct settler *settler, const struct settlement *s, struct arena *arena,
                      struct statement *ret)
{
    enum settle_kind kinds[SETTLE_KINDS];
    size_t n = settle_kinds(s, kinds);
    for (size_t i = 0; i < n; i++)
        ret[i] = settle_statement(settler, s, arena, kinds[i]);
    return n;
}

void settler_settled(const struct settlement *s, size_t index, const PGresult *res, size_t *ret_missing)
{
    enum settle_kind kinds[SETTLE_KINDS];
    if (index >= settle_kinds(s, kinds))
        return;
    bool done = kinds[index] == SETTLE_PLACED || kinds[index] == SETTLE_DONE, buried = kinds[index] == SETTLE_BURY;
    int64_t due = (int64_t)(done ? s->done_count : buried ? s->buried_count : 0), gone = 0;
    if (due > 0 && PQntuples(res) == 1)
        result_bigint(res, 0, 0, &gone);
    *ret_missing += due > gone ? (size_t)(due - gone) : 0;
}

bool settler_looks_on(const struct settlement *s, size_t index)
{
    enum settle_kind kinds[SETTLE_KINDS];
    return index < settle_kinds(s, kinds) && is_guarded(kinds[index]);
}
