/* DESIGN. One advisory transaction lock a key, taken by one statement; the key's oldest events, read by the next, whose
 * snapshot is younger than the locks. PostgreSQL makes a commit visible before it releases the committer's locks, so
 * what an earlier holder has deleted is not read again. The two statements travel in one round: the first leaves
 * the locked keys in a transaction-local setting for the second. scan.c says which ids to look at.
 *
 * `floor` keeps the reads off dead index entries at the front of a key's range. It is not a hint: an event below it
 * would be passed over and break the order of its key. So it only rises over ids that are settled (see scan.h) and were
 * found empty by a snapshot taken after they settled, and only when one sequence feeds the ids; a key that
 * waits is read from its own head on, wherever that is. */
#include "ordering/event_row.h"
#include "ordering/result.h"
#include "sql_text.h"

#include <stdlib.h>

#define ROWS_START 1024
#define ROWS_MAX 16384
#define FLOOR_STRETCH 200000
#define LOOK_MIN 9
#define LOOK_MAX 32
#define FEW 2 /* events of a key, on the average */
#define FEW_ROWS 4
#define WARY_CLAIMS 32

enum claim_statement { CLAIM_LOCK, CLAIM_READ, CLAIM_REST, CLAIM_STATEMENTS };
enum probe_statement { PROBE_DRAWN, PROBE_HOLDERS, PROBE_FLOOR };
enum settle_kind { SETTLE_DONE, SETTLE_BURY, SETTLE_KEPT, SETTLE_PARK, SETTLE_UNPARK };

struct per_key {
    struct ordering ordering;
    struct ordering_options options;
    char *lock_sql, *read_sql, *few_sql, *keep_sql, *free_sql, *done_sql, *bury_sql, *kept_sql, *park_sql, *unpark_sql,
        *drawn_sql, *holders_sql, *floor_sql, *peek_sql;
    bool missed; /* rows were missing once, gone or kept by something: from then on it is found out which */
    struct scan scan;
    int64_t rows_limit; /* adapts to the size of the rows */
    int64_t look;       /* rows to look at for every 8 keys wanted: adapts to how often keys repeat */
    bool few;           /* the last claim's keys had few events each, and all of them were returned */
    int64_t wary;       /* claims to go before few are expected again */
    int64_t floor;
    int64_t floor_to; /* end of the stretch that the probe under way looks at */
    struct scan_horizon horizon;
    uint64_t holders[SCAN_HOLDERS_MAX + 1];
};

static void per_key_close(struct ordering *o)
{
    struct per_key *pk = (struct per_key *)o;
    char *texts[] = {pk->lock_sql,  pk->read_sql,    pk->few_sql,   pk->keep_sql, pk->free_sql,
                     pk->done_sql,  pk->bury_sql,    pk->kept_sql,  pk->park_sql, pk->unpark_sql,
                     pk->drawn_sql, pk->holders_sql, pk->floor_sql, pk->peek_sql};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
    free(pk);
}

static struct ordering *per_key_open(const struct ordering_options *options, struct error *err)
{
    struct per_key *pk = memory_new(sizeof *pk);
    pk->ordering.type = &ordering_per_key;
    pk->options = *options;
    const struct sql_variable *v = options->variables;
    bool ok = (pk->lock_sql = sql_render(sql_per_key_lock, v, err)) &&
              (pk->read_sql = sql_render(sql_per_key_read, v, err)) &&
              (pk->few_sql = sql_render(sql_per_key_read_few, v, err)) &&
              (pk->keep_sql = sql_render(sql_per_key_keep, v, err)) &&
              (pk->free_sql = sql_render(sql_per_key_free, v, err)) &&
              (pk->done_sql = sql_render(options->archive ? sql_settle_archive : sql_settle_delete, v, err)) &&
              (pk->bury_sql = sql_render(sql_settle_bury, v, err)) &&
              (pk->kept_sql = sql_render(sql_settle_kept, v, err)) &&
              (pk->park_sql = sql_render(sql_settle_park, v, err)) &&
              (pk->unpark_sql = sql_render(sql_settle_unpark, v, err)) &&
              (pk->drawn_sql = sql_render(options->sequence ? sql_horizon_drawn : sql_horizon_seen, v, err)) &&
              (pk->holders_sql = sql_render(sql_horizon_holders, v, err)) &&
              (pk->floor_sql = sql_render(sql_horizon_floor, v, err)) &&
              (pk->peek_sql = sql_render(sql_per_key_peek, v, err));
    if (!ok) {
        per_key_close(&pk->ordering);
        return NULL;
    }
    scan_init(&pk->scan);
    pk->rows_limit = ROWS_START;
    pk->look = LOOK_MIN;
    pk->floor = SCAN_ID_MIN;
    return &pk->ordering;
}

/* Where there is one place, what comes first in the order of many would take it each time. It may fail again and again,
 * and as the one trial of a destination keep all others waiting: chance has to decide. */
static int64_t draw_share(const struct per_key *pk, const struct claim_request *request)
{
    int64_t share = pk->options.oldest_share;
    if (request->max_keys > 1)
        return share;
    return (int64_t)(request->draw / 2 % 100) < share ? 100 : 0;
}

static bool waits_come_last(const struct claim_request *request)
{
    return request->max_keys == 1 && request->draw % 2 == 1;
}

/* Rows to look at. Where both ends have something to look at, each has to yield its share of the keys. */
static void rows_to_look_at(const struct per_key *pk, const struct claim_request *request, const struct scan_plan *scan,
                            int64_t *ret_newest, int64_t *ret_oldest)
{
    int64_t rows = request->max_keys * pk->look / 8 + 4;
    bool both = scan->newest.lo <= scan->newest.hi && scan->oldest.lo <= scan->oldest.hi;
    *ret_newest = both ? rows * (100 - pk->options.oldest_share) / 100 + 1 : rows;
    *ret_oldest = both ? rows * pk->options.oldest_share / 100 + 1 : rows;
}

/* Keys that are known to have more events are no keys of few. */
static struct statement read_statement(struct per_key *pk, const struct claim_request *request, struct arena *arena,
                                       struct claim_plan *plan)
{
    plan->few = pk->few && pk->wary == 0 && request->follow_key_count == 0;
    if (plan->few && plan->rows_limit > (request->max_keys + 1) * FEW_ROWS)
        plan->rows_limit = (request->max_keys + 1) * FEW_ROWS;
    struct statement read = statement_of(plan->few ? pk->few_sql : pk->read_sql);
    read.by_row = true;
    statement_add_text(&read, pk->options.queue);
    statement_add_int(&read, arena, pk->floor);
    statement_add_int(&read, arena, plan->key_limit);
    statement_add_int(&read, arena, plan->rows_limit);
    return read;
}

static size_t per_key_claim(struct ordering *o, const struct claim_request *request, instant_us now,
                            struct arena *arena, struct statement *ret, struct claim_plan *ret_plan)
{
    struct per_key *pk = (struct per_key *)o;
    *ret_plan = (struct claim_plan){.rows_limit = pk->rows_limit, .key_limit = request->events_per_key};
    ret_plan->report =
        (struct scan_report){.newest_left = {1, 0}, .oldest_left = {1, 0}, .seen_max = SCAN_ID_MIN, .missed = {1, 0}};
    struct scan_plan *scan = &ret_plan->scan;
    if (request->followed_only)
        *scan = (struct scan_plan){.fresh_above = SCAN_ID_MAX, .newest = {1, 0}, .oldest = {1, 0}};
    else
        scan_next(&pk->scan, now, scan);

    int64_t newest_rows, oldest_rows;
    rows_to_look_at(pk, request, scan, &newest_rows, &oldest_rows);
    struct statement *lock = &ret[CLAIM_LOCK];
    *lock = statement_of(pk->lock_sql);
    statement_add_int(lock, arena, scan->fresh_above);
    statement_add_int(lock, arena, scan->newest.lo);
    statement_add_int(lock, arena, scan->newest.hi);
    statement_add_int(lock, arena, scan->oldest.lo);
    statement_add_int(lock, arena, scan->oldest.hi);
    statement_add_int(lock, arena, newest_rows);
    statement_add_int(lock, arena, request->max_keys);
    statement_add_int(lock, arena, draw_share(pk, request));
    statement_add_texts(lock, arena, request->busy_keys, request->busy_key_count);
    statement_add_ids(lock, arena, request->busy_solos, request->busy_solo_count);
    statement_add_texts(lock, arena, request->follow_keys, request->follow_key_count);
    statement_add_text(lock, pk->options.queue);
    statement_add_int(lock, arena, pk->options.lock_class);
    statement_add_int(lock, arena, waits_come_last(request));
    statement_add_int(lock, arena, oldest_rows);

    ret[CLAIM_READ] = read_statement(pk, request, arena, ret_plan);
    ret[CLAIM_REST] = statement_of(sql_per_key_rest);
    return CLAIM_STATEMENTS;
}

static bool read_locks(struct per_key *pk, struct claim_plan *plan, const PGresult *res,
                       const struct claim_intake *intake, struct error *err)
{
    if (PQnfields(res) != 11 || PQntuples(res) < 1)
        return error_set(err, ERROR_INTERNAL, "the locking half of a claim returned %d rows of %d columns",
                         PQntuples(res), PQnfields(res));
    struct scan_report *report = &plan->report;
    int64_t id;
    if (result_bigint(res, 0, 0, &id))
        report->newest_left = (struct id_range){plan->scan.newest.lo, id};
    if (result_bigint(res, 0, 1, &id))
        report->oldest_left = (struct id_range){id, plan->scan.oldest.hi};
    if (result_bigint(res, 0, 2, &id))
        report->seen_max = id;
    if (result_bigint(res, 0, 3, &id) && result_bigint(res, 0, 4, &report->missed.hi))
        report->missed.lo = id;
    result_bigint(res, 0, 5, &plan->locked);
    plan->locked_keys = arena_copy(intake->arena, result_span(res, 0, 6));
    if (result_bigint(res, 0, 9, &id) && id < pk->floor) {
        /* Somebody inserted an id that was long settled. This claim still reads above the old floor. */
        pk->floor = id;
        plan->report.missed = (struct id_range){id, report->missed.hi > id ? report->missed.hi : id};
    }
    plan->thin = result_bigint(res, 0, 10, &id) && id;
    struct span *missed = arena_array(intake->arena, (size_t)PQntuples(res), sizeof *missed);
    for (int row = 0; row < PQntuples(res); row++)
        if (!PQgetisnull(res, row, 8))
            missed[plan->missed_key_count++] = arena_copy(intake->arena, result_span(res, row, 8));
    plan->missed_keys = missed;
    return true;
}

static bool per_key_claimed(struct ordering *o, struct claim_plan *plan, size_t index, const PGresult *res,
                            const struct claim_intake *intake, struct error *err)
{
    struct per_key *pk = (struct per_key *)o;
    if (index == CLAIM_LOCK)
        return read_locks(pk, plan, res, intake, err);
    for (int row = 0; row < PQntuples(res); row++) {
        plan->rows++;
        if (!event_row_read(&pk->options, res, row, intake, err))
            return false;
    }
    return true;
}

static void per_key_claim_done(struct ordering *o, struct claim_plan *plan, int64_t took_us, instant_us now)
{
    struct per_key *pk = (struct per_key *)o;
    struct scan_report report = plan->report;
    report.found = plan->events > 0;
    scan_seen(&pk->scan, &plan->scan, &report, took_us, now);
    bool full = plan->rows >= plan->rows_limit;
    plan->truncated = full || plan->spilled;
    if (plan->truncated) {
        /* Some keys were locked and none of their events returned. */
        scan_failed(&pk->scan, &plan->scan);
        if (plan->scan.sweeping)
            scan_again(&pk->scan, plan->scan.oldest, now);
        if (report.seen_max > plan->scan.fresh_above)
            scan_again(&pk->scan, (struct id_range){plan->scan.fresh_above + 1, report.seen_max}, now);
    }
    if (plan->few && plan->truncated)
        pk->wary = WARY_CLAIMS;
    else if (pk->wary > 0)
        pk->wary--;
    pk->few = pk->options.key_index && !plan->truncated && plan->rows <= plan->locked * FEW;
    if (plan->thin)
        pk->look = pk->look * 2 < LOOK_MAX ? pk->look * 2 : LOOK_MAX;
    else if (pk->look > LOOK_MIN)
        pk->look--;
    if (plan->spilled)
        pk->rows_limit = pk->rows_limit > 1 ? pk->rows_limit / 2 : 1;
    else if (full && !plan->few && pk->rows_limit < ROWS_MAX)
        pk->rows_limit *= 2;
}

static struct statement per_key_hold(struct ordering *o, const struct key_list *list, bool keep, struct arena *arena)
{
    const struct per_key *pk = (const struct per_key *)o;
    struct statement st = statement_of(keep ? pk->keep_sql : pk->free_sql);
    statement_add_int(&st, arena, pk->options.lock_class);
    statement_add_texts(&st, arena, list->keys, list->key_count);
    statement_add_ids(&st, arena, list->solos, list->solo_count);
    return st;
}

static void per_key_claim_failed(struct ordering *o, const struct claim_plan *plan)
{
    scan_failed(&((struct per_key *)o)->scan, &plan->scan);
}

/* The statements of a settlement, in the order they run. */
static size_t settle_kinds(const struct settlement *s, bool kept, enum settle_kind *ret)
{
    size_t n = 0;
    if (s->done_count)
        ret[n++] = SETTLE_DONE;
    if (s->buried_count)
        ret[n++] = SETTLE_BURY;
    if (kept && s->done_count + s->buried_count)
        ret[n++] = SETTLE_KEPT;
    if (s->parked_count)
        ret[n++] = SETTLE_PARK;
    if (s->resumed_key_count || s->resumed_solo_count)
        ret[n++] = SETTLE_UNPARK;
    return n;
}

static void add_failures(struct statement *st, struct arena *arena, const struct settle_failure *failures, size_t count,
                         bool parking)
{
    int64_t *ids = arena_array(arena, count, sizeof *ids), *attempts = arena_array(arena, count, sizeof *attempts),
            *delays = arena_array(arena, count, sizeof *delays);
    struct span *keys = arena_array(arena, count, sizeof *keys), *whys = arena_array(arena, count, sizeof *whys);
    for (size_t i = 0; i < count; i++) {
        ids[i] = failures[i].id;
        keys[i] = failures[i].key;
        attempts[i] = failures[i].attempts;
        delays[i] = failures[i].delay_us;
        whys[i] = failures[i].why;
    }
    statement_add_ids(st, arena, ids, count);
    if (parking)
        statement_add_texts(st, arena, keys, count);
    statement_add_ids(st, arena, attempts, count);
    if (parking)
        statement_add_ids(st, arena, delays, count);
    statement_add_texts(st, arena, whys, count);
}

static struct statement settle_statement(const struct per_key *pk, const struct settlement *s, struct arena *arena,
                                         enum settle_kind kind)
{
    const char *const texts[] = {pk->done_sql, pk->bury_sql, pk->kept_sql, pk->park_sql, pk->unpark_sql};
    struct statement st = statement_of(texts[kind]);
    switch (kind) {
    case SETTLE_DONE:
        statement_add_ids(&st, arena, s->done, s->done_count);
        if (pk->options.archive)
            statement_add_text(&st, pk->options.queue);
        break;
    case SETTLE_BURY:
        statement_add_text(&st, pk->options.queue);
        add_failures(&st, arena, s->buried, s->buried_count, false);
        break;
    case SETTLE_KEPT:
        statement_add_ids(&st, arena, s->done, s->done_count + s->buried_count);
        break;
    case SETTLE_PARK:
        statement_add_text(&st, pk->options.queue);
        add_failures(&st, arena, s->parked, s->parked_count, true);
        break;
    case SETTLE_UNPARK:
        statement_add_text(&st, pk->options.queue);
        statement_add_texts(&st, arena, s->resumed_keys, s->resumed_key_count);
        statement_add_ids(&st, arena, s->resumed_solos, s->resumed_solo_count);
        break;
    }
    return st;
}

static size_t per_key_settle(struct ordering *o, const struct settlement *s, struct arena *arena, struct statement *ret)
{
    enum settle_kind kinds[ORDERING_STATEMENTS_MAX];
    size_t n = settle_kinds(s, ((const struct per_key *)o)->missed, kinds);
    for (size_t i = 0; i < n; i++)
        ret[i] = settle_statement((struct per_key *)o, s, arena, kinds[i]);
    return n;
}

static void per_key_settled(struct ordering *o, const struct settlement *s, size_t index, const PGresult *res,
                            size_t *ret_missing)
{
    enum settle_kind kinds[ORDERING_STATEMENTS_MAX];
    if (index >= settle_kinds(s, false, kinds) || kinds[index] > SETTLE_BURY)
        return;
    size_t due = kinds[index] == SETTLE_DONE ? s->done_count : s->buried_count;
    int64_t counted;
    size_t gone = PQntuples(res) == 1 && result_bigint(res, 0, 0, &counted)
                      ? (size_t)counted
                      : strtoul(PQcmdTuples((PGresult *)res), NULL, 10);
    *ret_missing += due > gone ? due - gone : 0;
    if (gone < due)
        ((struct per_key *)o)->missed = true;
}

static void per_key_released(struct ordering *o, int64_t lo, int64_t hi, instant_us at)
{
    struct scan *scan = &((struct per_key *)o)->scan;
    scan_again(scan, (struct id_range){lo, hi < scan->top ? hi : scan->top}, at);
}

static size_t per_key_probe(struct ordering *o, struct arena *arena, struct statement *ret)
{
    struct per_key *pk = (struct per_key *)o;
    pk->horizon = (struct scan_horizon){.first = SCAN_ID_MIN, .drawn = SCAN_ID_MIN, .holders = pk->holders};
    ret[PROBE_DRAWN] = statement_of(pk->drawn_sql);
    ret[PROBE_HOLDERS] = statement_of(pk->holders_sql);
    if (!pk->options.sequence || pk->scan.settled == SCAN_ID_MIN || pk->floor > pk->scan.settled)
        return PROBE_FLOOR;
    int64_t from = pk->floor < pk->scan.first ? SCAN_ID_MIN : pk->floor;
    int64_t start = pk->floor < pk->scan.first ? pk->scan.first : pk->floor;
    pk->floor_to = start > SCAN_ID_MAX - FLOOR_STRETCH ? SCAN_ID_MAX : start + FLOOR_STRETCH;
    if (pk->floor_to > pk->scan.settled)
        pk->floor_to = pk->scan.settled;
    struct statement *floor = &ret[PROBE_FLOOR];
    *floor = statement_of(pk->floor_sql);
    statement_add_int(floor, arena, from);
    statement_add_int(floor, arena, pk->floor_to);
    return PROBE_FLOOR + 1;
}

static void per_key_probed(struct ordering *o, size_t index, const PGresult *res)
{
    struct per_key *pk = (struct per_key *)o;
    if (index == PROBE_DRAWN && PQntuples(res) == 1) {
        result_bigint(res, 0, 0, &pk->horizon.first);
        result_bigint(res, 0, 1, &pk->horizon.drawn);
        if (!PQgetisnull(res, 0, 1) && pk->horizon.drawn == SCAN_ID_MIN)
            pk->horizon.drawn++; /* an id like any other; SCAN_ID_MIN itself stands for none */
        if (!pk->options.sequence && pk->horizon.drawn < pk->scan.top)
            pk->horizon.drawn = pk->scan.top; /* the greatest visible id falls when it is delivered */
    } else if (index == PROBE_HOLDERS) {
        for (int row = 0; row < PQntuples(res) && pk->horizon.holder_count <= SCAN_HOLDERS_MAX; row++)
            pk->holders[pk->horizon.holder_count++] = span_hash(result_span(res, row, 0));
        if (pk->horizon.drawn < pk->scan.settled)
            pk->floor = SCAN_ID_MIN; /* see scan_horizon() */
        scan_horizon(&pk->scan, &pk->horizon);
    } else if (index == PROBE_FLOOR && PQntuples(res) == 1) {
        int64_t id;
        pk->floor = result_bigint(res, 0, 0, &id) ? id : pk->floor_to + 1;
    }
}

static bool per_key_wants_probe(const struct ordering *o)
{
    const struct per_key *pk = (const struct per_key *)o;
    return scan_unsettled(&pk->scan) || (pk->options.sequence && pk->floor <= pk->scan.settled);
}

static void per_key_peek(const struct ordering *o, struct arena *arena, struct statement *ret)
{
    const struct per_key *pk = (const struct per_key *)o;
    *ret = statement_of(pk->peek_sql);
    statement_add_int(ret, arena, scan_fresh_above(&pk->scan));
    statement_add_text(ret, pk->options.queue);
}

static bool per_key_pending(const struct ordering *o, instant_us now)
{
    return scan_pending(&((const struct per_key *)o)->scan, now);
}

static instant_us per_key_pending_at(const struct ordering *o)
{
    return scan_pending_at(&((const struct per_key *)o)->scan);
}

static bool per_key_sweep_due(const struct ordering *o, instant_us now)
{
    return scan_sweep_due(&((const struct per_key *)o)->scan, now);
}

const struct ordering_type ordering_per_key = {
    .name = "per_key",
    .open = per_key_open,
    .close = per_key_close,
    .claim = per_key_claim,
    .claimed = per_key_claimed,
    .claim_done = per_key_claim_done,
    .claim_failed = per_key_claim_failed,
    .hold = per_key_hold,
    .settle = per_key_settle,
    .settled = per_key_settled,
    .released = per_key_released,
    .probe = per_key_probe,
    .probed = per_key_probed,
    .wants_probe = per_key_wants_probe,
    .peek = per_key_peek,
    .pending = per_key_pending,
    .pending_at = per_key_pending_at,
    .sweep_due = per_key_sweep_due,
};
