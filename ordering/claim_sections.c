#include "ordering/claim_sections.h"

#include "ordering/array_text.h"
#include "ordering/result.h"
#include "sql_text.h"

#include <stdlib.h>

#define ENOUGH_PART 8 /* a few keys too few are enough: looking at more rows costs more than they do */
#define DUE_PART 4    /* of the keys, as many at most whose wait is over */

/* Those of sql/claim/lock_ids.sql, lock_events.sql, lock_named.sql and lock_due.sql. */
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

static bool init_text(struct guarded_text *text, const char *template, const struct ordering_options *options,
                      const struct sql_variable *more, struct error *err)
{
    struct arena *arena = arena_new();
    const struct sql_variable *plain = sql_variables_with(options->variables, more, arena),
                              *guarded = options->guarded ? sql_variables_with(options->guarded, more, arena) : NULL;
    bool ok = guarded_text_init(text, template, plain, guarded, err);
    arena_free(arena);
    return ok;
}

static bool init_end(struct guarded_text *text, const struct ordering_options *options, const struct end *end,
                     struct error *err)
{
    const struct sql_variable all[] = {{"late", "false"},   {"more", "false"},       {"order", end->order},
                                       {"near", end->near}, {"behind", end->behind}, {NULL, NULL}};
    return init_text(text, sql_lock_ids, options, end->first ? all + 2 : all, err);
}

#define OF_IDS ":id between $1::bigint and $2::bigint"
#define OF_RANK ":id >= greatest($2::bigint, $9::bigint) and :priority "
#define AS_URGENT " and coalesce(:priority, -9223372036854775807 - 1) >= $10::bigint"
#define TOP_DOWN ":priority desc, :id"
#define RANKED ":id as id, :priority as rank"
#define BY_RANK "f.rank desc nulls last, f.id"

/* What a text of lock_events.sql looks at: its variables. */
struct look {
    const char *seen, *stretch, *sort, *first, *by, *all;
};

/* Of what is new the urgent alone are looked at where others come first. */
static const struct look look_newest = {":id as id", OF_IDS, ":id desc", "f.id", "o.id", "true"},
                         look_oldest = {":id as id", OF_IDS, ":id", "f.id", "o.id", "true"},
                         look_urgent = {RANKED, OF_IDS AS_URGENT, ":id desc", BY_RANK, "o.id", "true"},
                         look_top = {RANKED, OF_RANK "between $1::bigint and $1::bigint", TOP_DOWN, BY_RANK, "o.id",
                                     "false"},
                         look_below = {RANKED, OF_RANK "< $1::bigint", TOP_DOWN, BY_RANK, "o.rank", "false"};

static bool init_look(struct guarded_text *text, const struct ordering_options *options, const struct look *look,
                      struct error *err)
{
    struct sql_variable variables[] = {
        {"seen", look->seen}, {"stretch", look->stretch}, {"sort", look->sort}, {"first", look->first},
        {"by", look->by},     {"all", look->all},         {NULL, NULL}};
    char *parts[sizeof variables / sizeof *variables] = {NULL};
    size_t n = 0;
    while (variables[n].name && (parts[n] = sql_render(variables[n].text, options->variables, err))) {
        variables[n].text = parts[n];
        n++;
    }
    bool ok = !variables[n].name && init_text(text, sql_lock_events, options, variables, err);
    while (n > 0)
        free(parts[--n]);
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

bool claim_sections_init_events(struct claim_sections *sections, const struct ordering_options *options,
                                const struct claim_rows *rows, struct error *err)
{
    static const struct sql_variable no_keys[] = {{"parked_key", "null::text"}, {NULL, NULL}};
    *sections = (struct claim_sections){.options = options, .rows = rows, .waits = true, .events = true};
    struct arena *arena = arena_new();
    sections->due = sql_render(sql_lock_due, sql_variables_with(options->variables, no_keys, arena), err);
    arena_free(arena);
    return sections->due &&
           init_look(&sections->newest, options, options->priority ? &look_urgent : &look_newest, err) &&
           init_look(&sections->oldest, options, &look_oldest, err) &&
           (!options->priority || (init_look(&sections->top, options, &look_top, err) &&
                                   init_look(&sections->below, options, &look_below, err)));
}

void claim_sections_done(struct claim_sections *sections)
{
    guarded_text_done(&sections->top);
    guarded_text_done(&sections->below);
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
    return request->behind && !sections->events && sections->options->key_index && !id_range_is_empty(scan->oldest) &&
           !scan->sweeping;
}

/* Of `left` keys. Of events, whose priority counts, it is no more than their share. */
static int64_t part_of_oldest(const struct claim_sections *sections, const struct claim_request *request, int64_t left)
{
    if (sections->events)
        return claim_rows_part(request, sections->options->oldest_share);
    int64_t share = claim_rows_share(request, sections->options->oldest_share), part = left * share / 100;
    return part > 0 || share == 0 ? part : 1;
}

/* The oldest come first for their share of `left` keys, and what they leave of it goes to the others. Where nothing
 * else is left to look at, what is new leaves them their share instead. */
static void add_stretches(const struct claim_sections *sections, const struct claim_request *request, int64_t left,
                          struct claim_plan *plan)
{
    int64_t keys = request->max_keys, newest_rows, oldest_rows,
            look = claim_rows_look(sections->rows, keys, request->behind && !sections->events);
    if (claim_rows_split(&plan->scan, look, sections->options->oldest_share, &newest_rows, &oldest_rows)) {
        newest_rows++;
        oldest_rows++;
    }
    bool oldest = !id_range_is_empty(plan->scan.oldest), newest = !id_range_is_empty(plan->scan.newest);
    int64_t part = part_of_oldest(sections, request, left);
    bool last = puts_first(sections, request, &plan->scan) && part < keys;
    bool first = oldest && part > 0 && !last && (newest || plan->top || part == keys);
    if (first)
        add_section(plan, SECTION_OLDEST, part, plan->top ? claim_rows_look(sections->rows, part, false) : oldest_rows);
    plan->for_oldest = oldest && !first && (last || !newest) ? part : 0;
    int64_t rest = keys - plan->for_oldest;
    add_section(plan, SECTION_FRESH, rest, newest_rows);
    if (plan->top) {
        add_section(plan, SECTION_TOP, rest, newest_rows);
        add_section(plan, SECTION_BELOW, rest, newest_rows);
    }
    if (newest)
        add_section(plan, SECTION_NEWEST, rest, newest_rows);
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
    if (kind == SECTION_TOP || kind == SECTION_BELOW)
        return (struct id_range){plan->top_priority, kind == SECTION_TOP ? plan->top_id : SCAN_ID_MIN};
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
    if (kind == SECTION_TOP || kind == SECTION_BELOW)
        return kind == SECTION_TOP ? &sections->top : &sections->below;
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
    if (sections->events)
        statement_add_ids(&st, arena, request->busy_keyless_ids, request->busy_keyless_count);
    else
        add_busy(&st, request, arena);
    statement_add_int(&st, arena, index > 0);
    statement_add_int(&st, arena, plan->floor);
    bool urgent = section->kind == SECTION_FRESH || section->kind == SECTION_NEWEST;
    if (sections->events && urgent && sections->options->priority)
        /* beside the top those alone that come before it */
        statement_add_int(&st, arena, plan->top ? id_add(plan->top_priority, 1) : PRIORITY_LEAST);
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

/* Where the next claim goes on. Where there was no place left nothing was seen, and it goes on from the same one. */
static void read_top(struct claim_plan *plan, enum claim_section_kind kind, const PGresult *res)
{
    int64_t to = 0, cut = 0, full = 0;
    bool any = result_bigint(res, 0, kind == SECTION_TOP ? LOCK_SEEN_MAX : LOCK_SEEN_MIN, &to),
         is_cut = result_bigint(res, 0, kind == SECTION_TOP ? LOCK_CUT_MIN : LOCK_CUT_MAX, &cut);
    result_bigint(res, 0, LOCK_FULL, &full);
    plan->full = plan->full || full != 0;
    bool left = is_cut || full;
    if (kind == SECTION_TOP) {
        plan->left = true; /* what is new and less urgent was not looked at */
        if (is_cut || (any && full))
            plan->top_id = is_cut ? cut : id_add(to, 1);
        else if (!left)
            plan->top_id = SCAN_ID_MAX;
    } else if (plan->top_id == SCAN_ID_MAX && (any || !left)) {
        plan->top_priority = !left ? PRIORITY_LEAST : is_cut ? cut : to;
        plan->top_id = SCAN_ID_MIN;
    }
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
    if (kind == SECTION_TOP || kind == SECTION_BELOW)
        read_top(plan, kind, res);
    else if (kind != SECTION_NAMED && kind != SECTION_DUE)
        read_ids(sections, plan, kind, res, arena);
    plan->thin = plan->full && plan->tried < plan->enough;
    return true;
}
