#include "relay/side/unreadable_search.h"

#include "ordering/array_text.h"
#include "ordering/result.h"
#include "relay/queue/queue.h"

#include <stdlib.h>

#define LIST_ROWS 128   /* of which all columns are read */
#define LIST_WHERE 1024 /* of which the condition alone is asked, and twice as many each time */

/* When a source has its turn. */
enum source_turn {
    ALWAYS,
    UNTIL_SURE,   /* while no row was found, or no other row is readable */
    FOR_EVIDENCE, /* only when a row was found and none is readable: one list of rows */
    IN_VAIN       /* when nothing was found */
};

struct search_source {
    enum source_turn turn;
    bool read;       /* all columns; else the condition alone */
    struct span key; /* absent: whatever has these ids */
    int64_t lo, hi;
};

static struct unreadable_search *search_new(void)
{
    struct unreadable_search *search = memory_new(sizeof *search);
    search->arena = arena_new();
    return search;
}

void unreadable_search_free(struct unreadable_search *search)
{
    if (search)
        arena_free(search->arena);
    free(search);
}

static size_t count_elements(struct span array, struct arena *arena)
{
    size_t n = 0;
    struct span element;
    while (array_text_next(&array, arena, &element))
        n++;
    return n;
}

static void add_source(struct unreadable_search *search, struct search_source source)
{
    if (source.lo <= source.hi)
        search->sources[search->source_count++] = source;
}

static const struct search_source all_ids = {.lo = SCAN_ID_MIN, .hi = SCAN_ID_MAX};

/* The keys were locked and their events could not be read. */
static void add_locked(struct unreadable_search *search, const struct claim_plan *plan)
{
    struct span rest = plan->locked_keys, key;
    while (array_text_next(&rest, search->arena, &key))
        add_source(search, (struct search_source){ALWAYS, true, key, SCAN_ID_MIN, SCAN_ID_MAX});
    rest = plan->locked_keyless_ids;
    while (array_text_next(&rest, search->arena, &key)) {
        int64_t id = strtoll(key.data, NULL, 10); /* a copy of the element, with a byte behind it that is 0 */
        add_source(search, (struct search_source){ALWAYS, true, {NULL, 0}, id, id});
    }
    struct search_source more = all_ids;
    more.turn = FOR_EVIDENCE;
    more.read = true;
    add_source(search, more);
}

static void add_range(struct unreadable_search *search, struct id_range range)
{
    add_source(search, (struct search_source){UNTIL_SURE, false, {NULL, 0}, range.lo, range.hi});
}

struct unreadable_search *unreadable_search_claim(const struct queue_config *config, const struct claim_plan *plan)
{
    bool where = config->where != NULL;
    struct unreadable_search *search = search_new();
    search->key_limit = plan->key_limit;
    size_t locked =
        count_elements(plan->locked_keys, search->arena) + count_elements(plan->locked_keyless_ids, search->arena);
    search->sources = arena_array(search->arena, locked + 5, sizeof *search->sources);
    if (locked > 0) {
        add_locked(search, plan);
    } else if (where) {
        add_range(search, (struct id_range){id_add(plan->scan.fresh_above, 1), SCAN_ID_MAX});
        add_range(search, plan->scan.newest);
        add_range(search, plan->scan.oldest);
    }
    if (where) {
        struct search_source all = all_ids;
        all.turn = locked > 0 ? IN_VAIN : UNTIL_SURE;
        add_source(search, all);
    }
    if (search->source_count > 0)
        return search;
    unreadable_search_free(search);
    return NULL;
}

static void add_own(struct unreadable_search *search, struct span key, int64_t id)
{
    if (key.data)
        add_source(search,
                   (struct search_source){ALWAYS, false, arena_copy(search->arena, key), SCAN_ID_MIN, SCAN_ID_MAX});
    else
        add_source(search, (struct search_source){ALWAYS, false, {NULL, 0}, id, id});
}

struct unreadable_search *unreadable_search_settlement(const struct settlement *s)
{
    size_t count = s->parked_count + s->resumed_key_count + s->resumed_keyless_count;
    if (count == 0)
        return NULL;
    struct unreadable_search *search = search_new();
    search->sources = arena_array(search->arena, count, sizeof *search->sources);
    for (size_t i = 0; i < s->parked_count; i++)
        add_own(search, s->parked[i].key, s->parked[i].id);
    for (size_t i = 0; i < s->resumed_key_count; i++)
        add_own(search, s->resumed_keys[i], EVENT_NO_ID);
    for (size_t i = 0; i < s->resumed_keyless_count; i++)
        add_own(search, (struct span){NULL, 0}, s->resumed_keyless_ids[i]);
    return search;
}

struct unreadable_search *unreadable_search_again(const int64_t *ids, size_t count)
{
    struct unreadable_search *search = search_new();
    search->again = true;
    search->sources = arena_array(search->arena, 1, sizeof *search->sources);
    search->sources[search->source_count++] = (struct search_source){.read = true};
    search->id_count = count < SEARCH_IDS_MAX ? count : SEARCH_IDS_MAX;
    memcpy(search->ids, ids, search->id_count * sizeof *ids);
    search->step = SEARCH_TRY;
    halving_list_begin(&search->parts, search->id_count);
    return search;
}

static struct statement list_statement(const struct queue *queue, const struct unreadable_search *search,
                                       struct arena *arena)
{
    const struct search_source *source = &search->sources[search->source];
    struct statement st = statement_of(source->key.data ? queue->unreadable.key_ids_sql : queue->unreadable.ids_sql);
    st.by_row = true;
    statement_add_int(&st, arena, search->from);
    statement_add_int(&st, arena, source->hi);
    statement_add_int(&st, arena, (int64_t)search->most);
    if (source->key.data)
        statement_add_text(&st, arena_copy(arena, source->key).data);
    return st;
}

struct statement unreadable_search_statement(const struct queue *queue, const struct unreadable_search *search,
                                             struct arena *arena)
{
    if (search->step == SEARCH_LIST)
        return list_statement(queue, search, arena);
    if (search->step == SEARCH_KNOWN) {
        int64_t *ids = arena_array(arena, search->found_count, sizeof *ids);
        for (size_t i = 0; i < search->found_count; i++)
            ids[i] = search->found[i].id;
        struct statement known = statement_of(queue->unreadable.known_sql);
        statement_add_text(&known, queue->config->name);
        statement_add_ids(&known, arena, ids, search->found_count);
        statement_add_text(&known, UNREADABLE_WHY);
        return known;
    }
    bool read = search->sources[search->source].read;
    struct statement st = statement_of(read ? queue->unreadable.read_sql : queue->unreadable.where_sql);
    struct halving_part part = {0, 0};
    if (search->step == SEARCH_TRY)
        part = halving_list_part(&search->parts);
    st.by_row = true;
    statement_add_ids(&st, arena, search->ids + part.at, part.count);
    return st;
}

static bool is_known(const struct unreadable *unreadable, int64_t id)
{
    for (size_t i = 0; i < unreadable->count; i++)
        if (unreadable->ids[i] == id)
            return true;
    return false;
}

void unreadable_search_take(const struct queue *queue, struct unreadable_search *search, const PGresult *res)
{
    int rows = PQntuples(res);
    if (search->step == SEARCH_TRY && search->sources[search->source].read)
        search->rows += rows;
    if (search->step == SEARCH_KNOWN && rows > 0)
        search->blames = true;
    for (int row = 0; search->step == SEARCH_LIST && row < rows; row++) {
        if (search->listed >= SEARCH_IDS_MAX || !result_bigint(res, row, 0, &search->last))
            continue;
        search->listed++;
        if (!is_known(&queue->unreadable, search->last))
            search->ids[search->id_count++] = search->last;
    }
}

static bool is_sure(const struct unreadable_search *search)
{
    return search->found_count > 0 && search->readable[search->found_read] > 0;
}

static bool has_turn(const struct unreadable_search *search, enum source_turn turn)
{
    switch (turn) {
    case UNTIL_SURE:
        return !is_sure(search);
    case FOR_EVIDENCE:
        return search->found_count > 0 && !is_sure(search);
    case IN_VAIN:
        return search->found_count == 0;
    default:
        return true;
    }
}

static void begin_list(struct unreadable_search *search, int64_t from, size_t most)
{
    search->step = SEARCH_LIST;
    search->from = from;
    search->most = most;
    search->id_count = search->listed = 0;
}

/* Where nothing else could be read in this search, others may have been before. A function or a column that is missing
 * is missing for all rows, though. */
static bool may_blame(const struct queue *queue, const struct unreadable_search *search)
{
    if (is_sure(search))
        return true;
    for (size_t i = 0; i < search->found_count; i++) {
        enum error_kind kind = search->found[i].cause.kind;
        if (kind == ERROR_CONFIG || kind == ERROR_PERMISSION)
            return false;
    }
    return search->found_count == 1 || queue->unreadable.read_some;
}

static void end(const struct queue *queue, struct unreadable_search *search)
{
    search->blames = may_blame(queue, search);
    if (search->blames || search->found_count == 0 || search->again)
        search->over = true;
    else
        search->step = SEARCH_KNOWN;
}

static void begin_source(const struct queue *queue, struct unreadable_search *search, size_t place)
{
    while (place < search->source_count && !has_turn(search, search->sources[place].turn))
        place++;
    if (place >= search->source_count || search->found_count >= SEARCH_FOUND_MAX) {
        end(queue, search);
        return;
    }
    search->source = place;
    search->source_found = search->found_count;
    search->rows = 0;
    begin_list(search, search->sources[place].lo, search->sources[place].read ? LIST_ROWS : LIST_WHERE);
}

/* A key is read up to the first row that cannot be, and so many that can. */
static bool is_done_with(const struct unreadable_search *search)
{
    const struct search_source *source = &search->sources[search->source];
    bool found = search->found_count > search->source_found;
    return search->listed < search->most || source->turn == FOR_EVIDENCE || !has_turn(search, source->turn) ||
           (source->key.data && found) || (source->read && search->rows >= search->key_limit) ||
           search->last == SCAN_ID_MAX;
}

static void next_list(const struct queue *queue, struct unreadable_search *search)
{
    if (search->again) {
        end(queue, search);
        return;
    }
    if (is_done_with(search)) {
        begin_source(queue, search, search->source + 1);
        return;
    }
    bool read = search->sources[search->source].read;
    size_t most = read || search->most * 2 > SEARCH_IDS_MAX ? search->most : search->most * 2;
    begin_list(search, search->last + 1, most);
}

/* Places that are searched one after the other may have the same rows. */
static void add_found(struct unreadable_search *search, int64_t id, bool read, const struct error *failure)
{
    for (size_t i = 0; i < search->found_count; i++)
        if (search->found[i].id == id)
            return;
    search->found_read = read;
    search->found[search->found_count++] = (struct search_found){id, *failure};
}

static void take_part(struct unreadable_search *search, const struct error *failure)
{
    struct halving_part part = halving_list_part(&search->parts);
    bool read = search->sources[search->source].read;
    if (!failure) {
        halving_list_succeeded(&search->parts);
        search->readable[read] += part.count;
    } else if (halving_list_failed(&search->parts) && search->found_count < SEARCH_FOUND_MAX) {
        add_found(search, search->ids[part.at], read, failure);
    }
}

void unreadable_search_ended(const struct queue *queue, struct unreadable_search *search, const struct error *failure)
{
    switch (search->step) {
    case SEARCH_NOTHING:
        if (failure)
            search->over = true;
        else
            begin_source(queue, search, 0);
        return;
    case SEARCH_LIST:
        search->step = SEARCH_TRY;
        if (failure)
            search->over = true;
        else
            halving_list_begin(&search->parts, search->id_count);
        break;
    case SEARCH_TRY:
        take_part(search, failure);
        break;
    case SEARCH_KNOWN:
        search->over = true;
        return;
    }
    if (!search->over && search->parts.count == 0)
        next_list(queue, search);
}
