#include "ordering/claim_sections.h"

#include "ordering/array_text.h"
#include "ordering/result.h"
#include "sql_text.h"

#include <stdlib.h>

#define ENOUGH_PART 8 /* a few keys too few are enough: looking at more rows costs more than they do */
#define DUE_PART 4    /* of the keys, as many at most whose wait is over */

/* Those of sql/claim/lock_ids.sql, lock_named.sql and lock_due.sql. */
enum lock_column {
    LOCK_SEEN_MIN,
    LOCK_SEEN_MAX,
    LOCK_MISSED_MIN,
    LOCK_MISSED_MAX,
    LOCK_LOCKED,
    LOCK_TRIED,
    LOCK_CUT_MIN,
    LOCK_CUT_MAX,
    LOCK_FULL,
    LOCK_CLAIM,
    LOCK_KEYLESS,
    LOCK_MISSED,
    LOCK_LOW,
    LOCK_WAITS,
    LOCK_COLUMNS
};

/* ---- the statements' texts ---- */

/* The end that a text of lock_ids.sql looks from. */
struct end {
    const char *order, *near, *behind;
    bool first; /* a key whose first event is not there has no place */
};

static const struct end end_newest = {"desc", "high", "<=", false}, end_newest_first = {"desc", "high", "<=", true},
                        end_oldest = {"asc", "low", ">=", false};

static bool init_end(struct guarded_text *text, const struct ordering_options *options, const struct end *end,
                     struct error *err)
{
    const struct sql_variable all[] = {{"late", "false"},   {"more", "false"},       {"order", end->order},
                                       {"near", end->near}, {"behind", end->behind}, {NULL, NULL}};
    const struct sql_variable *of_end = end->first ? all + 2 : all;
    struct arena *arena = arena_new();
    const struct sql_variable *plain = sql_variables_with(options->variables, of_end, arena),
                              *guarded = options->guarded ? sql_variables_with(options->guarded, of_end, arena) : NULL;
    bool ok = guarded_text_init(text, sql_lock_ids, plain, guarded, err);
    arena_free(arena);
    return ok;
}

bool claim_sections_init(struct claim_sections *sections, const struct ordering_options *options,
                         const struct claim_rows *rows, struct error *err)
{
    *sections = (struct claim_sections){.options = options, .rows = rows, .waits = true};
    return init_end(&sections->newest, options, &end_newest, err) &&
           init_end(&sections->newest_first, options, &end_newest_first, err) &&
           init_end(&sections->oldest, options, &end_oldest, err) &&
           (sections->named = sql_render(sql_lock_named, options->variables, err)) &&
           (sections->due = sql_render(sql_lock_due, options->variables, err));
}

void claim_sections_done(struct claim_sections *sections)
{
    guarded_text_done(&sections->newest);
    guarded_text_done(&sections->newest_first);
    guarded_text_done(&sections->oldest);
    free(sections->named);
    free(sections->due);
}

/* ---- which of them, in which order, and for how many keys ---- */

static void add_section(struct claim_plan *plan, enum claim_section_kind kind, int64_t keys, int64_t rows)
{
    plan->sections[plan->section_count++] = (struct claim_section){.kind = kind, .keys = keys, .rows = rows};
}

/* Behind a slow sink, what is new gets its places by keys whose first event is there, and what those leave goes to the
 * oldest end, which has the first events of the others. Without an index on the key, asking for each key would read the
 * table each time. */
static bool puts_first(const struct claim_sections *sections, const struct claim_request *request,
                       const struct scan_plan *scan)
{
    return request->behind && sections->options->key_index && !id_range_is_empty(scan->oldest) && !scan->sweeping;
}

/* The oldest come first for their share of `left` keys, and what they leave of it goes to the others. Where nothing
 * else is left to look at, what is new leaves them their share instead. */
static void add_stretches(const struct claim_sections *sections, const struct claim_request *request, int64_t left,
                          struct claim_plan *plan)
{
    int64_t keys = request->max_keys, newest_rows, oldest_rows,
            share = claim_rows_share(request, sections->options->oldest_share),
            look = claim_rows_look(sections->rows, keys, request->behind);
    if (claim_rows_split(&plan->scan, look, sections->options->oldest_share, &newest_rows, &oldest_rows)) {
        newest_rows++;
        oldest_rows++;
    }
    bool oldest = !id_range_is_empty(plan->scan.oldest), newest = !id_range_is_empty(plan->scan.newest);
    int64_t part = left * share / 100 > 0 || share == 0 ? left * share / 100 : 1;
    bool last = puts_first(sections, request, &plan->scan) && part < keys;
    bool first = oldest && share > 0 && !last && (newest || part == keys);
    if (first)
        add_section(plan, SECTION_OLDEST, part, oldest_rows);
    int64_t rest = oldest && !first && (last || !newest) ? keys - part : keys;
    add_section(plan, SECTION_FRESH, rest, newest_rows);
    if (newest)
        add_section(plan, SECTION_NEWEST, last ? rest : keys, newest_rows);
    plan->for_oldest = last ? part : 0;
    if (oldest && !first)
        add_section(plan, SECTION_OLDEST, keys, oldest_rows);
}

static void choose_sections(const struct claim_sections *sections, const struct claim_request *request,
                            struct claim_plan *plan)
{
    int64_t due = request->max_keys / DUE_PART > 1 ? request->max_keys / DUE_PART : 1;
    int64_t left = request->max_keys - (int64_t)request->follow_key_count - (sections->waits ? due : 0);
    bool last = claim_rows_waits_last(request);
    if (request->follow_key_count > 0)
        add_section(plan, SECTION_NAMED, (int64_t)request->follow_key_count, 0);
    if (sections->waits && !last)
        add_section(plan, SECTION_DUE, due, 0);
    if (!request->followed_only)
        add_stretches(sections, request, left, plan);
    if (sections->waits && last)
        add_section(plan, SECTION_DUE, due, 0);
    if (plan->section_count == 0) /* one has to leave names for the half that reads */
        add_section(plan, SECTION_NAMED, 0, 0);
}

/* ---- the statements ---- */

static struct id_range ids_of(const struct claim_plan *plan, enum claim_section_kind kind)
{
    if (kind == SECTION_FRESH)
        return (struct id_range){id_add(plan->scan.fresh_above, 1), SCAN_ID_MAX};
    return kind == SECTION_NEWEST ? plan->scan.newest : plan->scan.oldest;
}

static void add_busy(struct statement *st, const struct claim_request *request, struct arena *arena)
{
    statement_add_texts(st, arena, request->busy_keys, request->busy_key_count);
    statement_add_ids(st, arena, request->busy_keyless_ids, request->busy_keyless_count);
}

static struct statement ask_by_name(const struct claim_sections *sections, const struct claim_request *request,
                                    struct arena *arena)
{
    struct statement st = statement_of(sections->named);
    statement_add_texts(&st, arena, request->follow_keys, request->follow_key_count);
    statement_add_text(&st, sections->options->queue);
    return st;
}

static struct statement ask_for_due(const struct claim_sections *sections, const struct claim_request *request,
                                    const struct claim_section *section, bool behind_others, struct arena *arena)
{
    struct statement st = statement_of(sections->due);
    statement_add_int(&st, arena, section->keys);
    statement_add_int(&st, arena, request->max_keys);
    statement_add_text(&st, sections->options->queue);
    add_busy(&st, request, arena);
    statement_add_int(&st, arena, behind_others);
    return st;
}

static const struct guarded_text *text_of(const struct claim_sections *sections, const struct claim_request *request,
                                          const struct claim_plan *plan, enum claim_section_kind kind)
{
    if (kind == SECTION_OLDEST)
        return &sections->oldest;
    return puts_first(sections, request, &plan->scan) ? &sections->newest_first : &sections->newest;
}

static struct statement ask_for_ids(const struct claim_sections *sections, const struct claim_request *request,
                                    const struct claim_plan *plan, size_t index, struct arena *arena)
{
    const struct claim_section *section = &plan->sections[index];
    struct id_range ids = ids_of(plan, section->kind);
    struct statement st = statement_of(guarded_text_of(text_of(sections, request, plan, section->kind), plan->guarded));
    statement_add_int(&st, arena, ids.lo);
    statement_add_int(&st, arena, ids.hi);
    statement_add_int(&st, arena, section->rows);
    statement_add_int(&st, arena, section->keys);
    statement_add_int(&st, arena, request->max_keys - (section->kind == SECTION_OLDEST ? 0 : plan->for_oldest));
    statement_add_text(&st, sections->options->queue);
    add_busy(&st, request, arena);
    statement_add_int(&st, arena, index > 0);
    statement_add_int(&st, arena, plan->floor);
    return st;
}

void claim_sections_ask(const struct claim_sections *sections, const struct claim_request *request,
                        struct claim_plan *plan, struct arena *arena, struct statement *ret)
{
    choose_sections(sections, request, plan);
    plan->enough = request->max_keys - request->max_keys / ENOUGH_PART;
    for (size_t i = 0; i < plan->section_count; i++)
        if (plan->sections[i].kind == SECTION_NAMED)
            ret[i] = ask_by_name(sections, request, arena);
        else if (plan->sections[i].kind == SECTION_DUE)
            ret[i] = ask_for_due(sections, request, &plan->sections[i], i > 0, arena);
        else
            ret[i] = ask_for_ids(sections, request, plan, i, arena);
}

/* ---- what they have locked and seen ---- */

static bool next_id(struct span *rest, struct arena *arena, int64_t *ret)
{
    struct span text;
    if (!array_text_next(rest, arena, &text))
        return false;
    *ret = strtoll(text.data, NULL, 10);
    return true;
}

/* A key, the least and the greatest id that was found of it, and so on: they are added to the list. */
static void read_keys(struct found_keys *keys, struct span texts, struct arena *arena)
{
    struct span rest = texts, text;
    size_t most = keys->count;
    while (texts.data && array_text_next(&rest, arena, &text))
        most++;
    if (most == keys->count)
        return;
    struct found_key *at = arena_array(arena, most, sizeof *at);
    if (keys->count > 0)
        memcpy(at, keys->at, keys->count * sizeof *at);
    struct id_range ids;
    while (array_text_next(&texts, arena, &text) && next_id(&texts, arena, &ids.lo) && next_id(&texts, arena, &ids.hi))
        at[keys->count++] = (struct found_key){.key = text, .ids = ids};
    keys->at = at;
}

/* Where there was no place, or no row more to be looked at. What is new and left over needs no note: each claim looks
 * there. */
static void read_left(struct claim_plan *plan, enum claim_section_kind kind, const PGresult *res, struct id_range seen)
{
    struct scan_report *report = &plan->report;
    struct id_range cut = {1, 0}, ids = ids_of(plan, kind);
    int64_t full = 0;
    bool any = result_bigint(res, 0, LOCK_CUT_MIN, &cut.lo) && result_bigint(res, 0, LOCK_CUT_MAX, &cut.hi);
    result_bigint(res, 0, LOCK_FULL, &full);
    plan->full = plan->full || full != 0;
    if (!any && !full)
        return;
    bool none = id_range_is_empty(seen);
    if (kind == SECTION_FRESH)
        plan->left = true;
    else if (kind == SECTION_NEWEST)
        report->newest_left = (struct id_range){ids.lo, any ? cut.hi : none ? ids.hi : id_add(seen.lo, -1)};
    else
        report->oldest_left = (struct id_range){any ? cut.lo : none ? ids.lo : id_add(seen.hi, 1), ids.hi};
}

static void read_ids(struct claim_sections *sections, struct claim_plan *plan, enum claim_section_kind kind,
                     const PGresult *res, struct arena *arena)
{
    struct scan_report *report = &plan->report;
    struct id_range seen = {1, 0}, missed;
    int64_t waits = 0;
    if (result_bigint(res, 0, LOCK_SEEN_MIN, &missed.lo) && result_bigint(res, 0, LOCK_SEEN_MAX, &missed.hi))
        seen = missed;
    if (result_bigint(res, 0, LOCK_MISSED_MIN, &missed.lo) && result_bigint(res, 0, LOCK_MISSED_MAX, &missed.hi))
        id_range_widen(&report->missed, missed);
    if (!id_range_is_empty(seen)) {
        report->seen_min = report->seen_max == SCAN_ID_MIN || seen.lo < report->seen_min ? seen.lo : report->seen_min;
        report->seen_max = seen.hi > report->seen_max ? seen.hi : report->seen_max;
    }
    read_left(plan, kind, res, seen);
    read_keys(&plan->low, result_span(res, 0, LOCK_LOW), arena);
    result_bigint(res, 0, LOCK_WAITS, &waits);
    sections->waits = waits > 0;
}

bool claim_section_locked(struct claim_sections *sections, struct claim_plan *plan, size_t index, const PGresult *res,
                          struct arena *arena, struct error *err)
{
    if (PQnfields(res) != LOCK_COLUMNS || PQntuples(res) != 1)
        return error_set(err, ERROR_INTERNAL, "the locking half of a claim returned %d rows of %d columns",
                         PQntuples(res), PQnfields(res));
    int64_t locked = 0, tried = 0;
    result_bigint(res, 0, LOCK_LOCKED, &locked);
    result_bigint(res, 0, LOCK_TRIED, &tried);
    plan->locked += locked;
    plan->tried += tried;
    plan->locked_keys = arena_copy(arena, result_span(res, 0, LOCK_CLAIM));
    plan->locked_keyless_ids = arena_copy(arena, result_span(res, 0, LOCK_KEYLESS));
    read_keys(&plan->missed, result_span(res, 0, LOCK_MISSED), arena);
    enum claim_section_kind kind = plan->sections[index].kind;
    if (kind != SECTION_NAMED && kind != SECTION_DUE)
        read_ids(sections, plan, kind, res, arena);
    plan->thin = plan->full && plan->tried < plan->enough;
    return true;
}
