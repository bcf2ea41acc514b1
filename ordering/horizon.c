#include "ordering/horizon.h"

#include "ordering/result.h"
#include "sql_text.h"

#include <stdlib.h>

#define FLOOR_STRETCH 200000
#define FLOOR_ROWS 5000 /* that are covered: 30 ms to 50 ms */
#define FLOOR_ROWS_STEP 64
#define BARE_MAX (ID_RANGES_MAX - 1)    /* so many that there is room for what is between them, */
#define BARE_IDS 10000                  /* of so many ids: a probe walks over fewer sooner than it comes back */
#define PROBE_IDS 500                   /* so many ids that claims walk again cost them less than a probe */
#define STUCK_US (1 * SECOND_US)        /* so long the floor waits for an event */
#define MOVERS_PAUSE_US (1 * SECOND_US) /* pg_locks takes 2 ms while a relay holds 2,000 keys */

enum probe_statement { PROBE_DRAWN, PROBE_HOLDERS, PROBE_MORE };

bool horizon_init(struct horizon *horizon, const struct ordering_options *options, enum horizon_floor kind,
                  struct error *err)
{
    const struct sql_variable *v = options->variables;
    *horizon = (struct horizon){.sequence = options->sequence,
                                .kind = options->sequence ? kind : FLOOR_NONE,
                                .sees_all = !options->filter && !options->passes,
                                .key_index = options->key_index,
                                .queue = options->queue,
                                .floor = SCAN_ID_MIN,
                                .rising = true,
                                .rows = 1,
                                .stuck = SCAN_ID_MIN};
    return (horizon->drawn_sql = sql_render(options->sequence ? sql_horizon_drawn : sql_horizon_seen, v, err)) &&
           (horizon->holders_sql = sql_render(sql_horizon_holders, v, err)) &&
           (horizon->movers_sql = sql_render(sql_horizon_movers, v, err)) &&
           (horizon->floor_sql = sql_render(sql_horizon_floor, v, err));
}

void horizon_done(struct horizon *horizon)
{
    free(horizon->drawn_sql);
    free(horizon->holders_sql);
    free(horizon->movers_sql);
    free(horizon->floor_sql);
    free(horizon->writers);
    left_behind_clear(&horizon->left);
}

static void forget_writers(struct horizon *horizon)
{
    free(horizon->writers);
    horizon->writers = NULL;
}

void horizon_forget(struct horizon *horizon, struct scan *scan)
{
    horizon->floor = horizon->stuck = SCAN_ID_MIN;
    horizon->bare.count = 0;
    left_behind_clear(&horizon->left);
    horizon->covered = false;
    horizon->rising = true;
    horizon->rows = 1;
    forget_writers(horizon);
    horizon->epoch++;
    scan_init(scan);
}

/* Keys: without their index whoever moves an entry cannot look for what it covers, and what a filter hides he does not
 * see. */
static bool sees_keys(const struct horizon *horizon)
{
    return horizon->sees_all && horizon->key_index;
}

static bool asks_for_movers(const struct horizon *horizon, instant_us now)
{
    return (horizon->covered || horizon->left.count > 0) && sees_keys(horizon) && now >= horizon->movers_at;
}

/* Before what is covered is passed, or no longer remembered: what had settled at the last look. */
static struct statement ask_for_movers(struct horizon *horizon, const struct scan *scan, instant_us now)
{
    struct statement ret = statement_of(horizon->movers_sql);
    statement_add_text(&ret, horizon->writers);
    horizon->movers_at = now + MOVERS_PAUSE_US;
    if (horizon->writers && horizon->floor_to > horizon->looked_settled)
        horizon->floor_to = horizon->looked_settled;
    horizon->look_settled = scan->settled;
    return ret;
}

/* The next stretch of what lies between the floor and what is settled. */
static size_t probe_floor(struct horizon *horizon, const struct scan *scan, instant_us now, struct arena *arena,
                          struct statement *ret)
{
    int64_t from = horizon->floor < scan->first ? SCAN_ID_MIN : horizon->floor;
    horizon->floor_to = id_add(horizon->floor < scan->first ? scan->first : horizon->floor, FLOOR_STRETCH);
    if (horizon->floor_to > scan->settled)
        horizon->floor_to = scan->settled;
    if (horizon->bare.count > 0 && horizon->floor_to >= horizon->bare.at[0].lo)
        horizon->floor_to = horizon->bare.at[0].lo - 1;
    size_t count = 0;
    horizon->floor_from = horizon->floor;
    horizon->asks = asks_for_movers(horizon, now);
    if (horizon->asks)
        ret[count++] = ask_for_movers(horizon, scan, now);
    struct statement *floor = &ret[count++];
    *floor = statement_of(horizon->floor_sql);
    statement_add_int(floor, arena, from);
    statement_add_int(floor, arena, horizon->floor_to);
    statement_add_text(floor, horizon->queue);
    horizon->floor_rows = horizon->asks && horizon->covered ? FLOOR_ROWS : horizon->rows;
    statement_add_int(floor, arena, horizon->floor_rows);
    left_behind_add_to(&horizon->left, arena, floor);
    return count;
}

size_t horizon_probe(struct horizon *horizon, const struct scan *scan, instant_us now, struct arena *arena,
                     struct statement *ret)
{
    horizon->reset = horizon->asks = false;
    horizon->probed_at = now;
    horizon->read = (struct scan_horizon){.first = SCAN_ID_MIN, .drawn = SCAN_ID_MIN, .holders = horizon->holders};
    ret[PROBE_DRAWN] = statement_of(horizon->drawn_sql);
    ret[PROBE_HOLDERS] = statement_of(horizon->holders_sql);
    statement_add_int(&ret[PROBE_HOLDERS], arena, scan_unsettled(scan) ? SCAN_ID_MIN : scan->settled);
    size_t count = PROBE_MORE;
    bool more = horizon->floor <= scan->settled || horizon->left.count > 0;
    if (horizon->kind != FLOOR_NONE && scan->settled != SCAN_ID_MIN && more)
        count += probe_floor(horizon, scan, now, arena, ret + count);
    horizon->floor_at = count - 1;
    return count;
}

/* A sequence that was set back, and a server that has lost its last values. What has been drawn shows it only while it
 * is less than what is settled: the source shows it also when the ids have caught up since. */
static void read_source(struct horizon *horizon, const PGresult *res)
{
    bool told = PQnfields(res) > 2 && !PQgetisnull(res, 0, 2);
    uint64_t source = told ? span_hash(result_span(res, 0, 2)) : 0;
    horizon->reset = horizon->source && source != horizon->source;
    horizon->source = source;
}

static void read_drawn(struct horizon *horizon, const struct scan *scan, const PGresult *res)
{
    struct scan_horizon *read = &horizon->read;
    result_bigint(res, 0, 0, &read->first);
    result_bigint(res, 0, 1, &read->drawn);
    if (!PQgetisnull(res, 0, 1) && read->drawn == SCAN_ID_MIN)
        read->drawn++; /* an id like any other; SCAN_ID_MIN itself stands for none */
    if (!horizon->sequence && read->drawn < scan->top)
        read->drawn = scan->top; /* the greatest visible id falls when it is delivered */
}

/* From where on the keys of what was left behind are read now, in the order in which they were named; or that they need
 * not be known. */
static void read_left(struct horizon *horizon, const PGresult *res)
{
    int64_t ids[LEFT_BEHIND_MAX];
    int count = 0;
    for (; count < PQntuples(res) && count < LEFT_BEHIND_MAX && !PQgetisnull(res, count, 4); count++) {
        ids[count] = SCAN_ID_MIN;
        result_bigint(res, count, 5, &ids[count]);
    }
    left_behind_move(&horizon->left, ids, (size_t)count);
}

/* Probes have found it at the floor for long, whoever has it, and whatever for. The first of all ids never is: nothing
 * goes past it. */
static bool is_stuck(struct horizon *horizon, int64_t id)
{
    if (horizon->stuck != id || id == SCAN_ID_MIN)
        horizon->stuck_since = horizon->probed_at;
    horizon->stuck = id;
    return horizon->probed_at - horizon->stuck_since >= STUCK_US;
}

/* And over what is known to be bare. */
static void raise_floor(struct horizon *horizon, int64_t to)
{
    horizon->floor = to;
    while (horizon->bare.count > 0 && horizon->bare.at[0].lo <= horizon->floor) {
        struct id_range below = horizon->bare.at[0];
        id_ranges_take(&horizon->bare, below);
        horizon->floor = below.hi < horizon->floor ? horizon->floor : id_add(below.hi, 1);
    }
}

static int64_t more_rows(int64_t rows)
{
    return rows < FLOOR_ROWS / FLOOR_ROWS_STEP ? rows * FLOOR_ROWS_STEP : FLOOR_ROWS;
}

static void read_floor(struct horizon *horizon, const PGresult *res)
{
    int64_t id, covered = 0;
    bool found = result_bigint(res, 0, 0, &id), passed = false;
    result_bigint(res, 0, 1, &covered);
    if (!found) {
        passed = result_bigint(res, 0, 2, &id);
        id = id_add(passed ? id : horizon->floor_to, 1);
    }
    if (horizon->floor < horizon->floor_from || id < horizon->floor)
        return; /* a claim has found more out meanwhile */
    raise_floor(horizon, id);
    horizon->rising = horizon->floor > horizon->floor_from;
    horizon->rows = passed ? more_rows(horizon->floor_rows) : 1;
    horizon->covered = covered != 0 || passed;
    if (found && is_stuck(horizon, id) && horizon->kind == FLOOR_KEYS && sees_keys(horizon))
        left_behind_add(&horizon->left, PQgetisnull(res, 0, 3) ? NULL : PQgetvalue(res, 0, 3), id);
}

/* They are sent back as they came. */
static void read_writers(struct horizon *horizon, const PGresult *res)
{
    forget_writers(horizon);
    horizon->writers = memory_text(PQgetvalue(res, 0, 0));
    horizon->looked_settled = horizon->look_settled;
}

void horizon_probed(struct horizon *horizon, struct scan *scan, size_t index, const PGresult *res)
{
    struct scan_horizon *read = &horizon->read;
    if (index == PROBE_DRAWN && PQntuples(res) == 1) {
        read_drawn(horizon, scan, res);
        read_source(horizon, res);
    } else if (index == PROBE_HOLDERS) {
        for (int row = 0; row < PQntuples(res) && read->holder_count <= SCAN_HOLDERS_MAX; row++)
            horizon->holders[read->holder_count++] = span_hash(result_span(res, row, 0));
        horizon->reset |= read->drawn < scan->settled; /* see scan_horizon() */
        /* Who holds ids was asked from what was settled on, which is nothing now: the next probe asks for all. */
        if (horizon->reset)
            horizon_forget(horizon, scan);
        else
            scan_horizon(scan, read);
    } else if (horizon->asks && index == horizon->floor_at - 1 && PQntuples(res) == 1 && !horizon->reset) {
        read_writers(horizon, res);
    } else if (index == horizon->floor_at && PQntuples(res) >= 1 && !horizon->reset) {
        read_left(horizon, res);
        read_floor(horizon, res);
    }
}

/* Where there is no room, ids would be added that nobody has looked at. */
static bool is_worth_noting(const struct horizon *horizon, struct id_range bare)
{
    return id_ranges_touch(&horizon->bare, bare) ||
           (horizon->bare.count < BARE_MAX && id_add(bare.lo, BARE_IDS) <= bare.hi);
}

void horizon_looked(struct horizon *horizon, const struct claim_plan *plan, struct id_range bare)
{
    bool counts = horizon->kind != FLOOR_NONE && horizon->sees_all && plan->epoch == horizon->epoch &&
                  !id_range_is_empty(bare) && bare.hi <= plan->scan.settled && bare.hi >= horizon->floor;
    if (counts && bare.lo <= horizon->floor)
        raise_floor(horizon, id_add(bare.hi, 1));
    else if (counts && is_worth_noting(horizon, bare))
        id_ranges_add(&horizon->bare, bare);
}

void horizon_saw(struct horizon *horizon, int64_t id)
{
    if (id_ranges_hold(&horizon->bare, id))
        horizon->bare.count = 0; /* somebody puts in old ids: others may be there by now, too */
}

void horizon_lower(struct horizon *horizon, int64_t id)
{
    horizon->floor = id;
    horizon->bare.count = 0;
}

void horizon_inhabited(const struct horizon *horizon, struct id_ranges *ret)
{
    int64_t from = left_behind_least(&horizon->left, horizon->floor);
    ret->count = 0;
    for (size_t i = 0; i < horizon->bare.count; i++) {
        ret->at[ret->count++] = (struct id_range){from, horizon->bare.at[i].lo - 1};
        from = id_add(horizon->bare.at[i].hi, 1);
    }
    ret->at[ret->count++] = (struct id_range){from, SCAN_ID_MAX};
}

bool horizon_wants_probe(const struct horizon *horizon, const struct scan *scan)
{
    return scan_unsettled_ids(scan) > PROBE_IDS ||
           (horizon->kind != FLOOR_NONE && horizon->rising && id_add(horizon->floor, PROBE_IDS) <= scan->settled);
}
