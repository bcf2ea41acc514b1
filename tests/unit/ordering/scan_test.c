/* Positions in a model of a table: ids that become visible late or never, several relays, claims that fail. */
#include "ordering/scan.h"

#include "relay/base/backoff.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#include <stdlib.h>

#define ROWS_MAX 4000
#define RELAYS 3
#define KEYS ((size_t)16) /* taken by one claim */
#define LOOKED (KEYS * 2) /* rows fetched from each stretch */

enum row_state { ROW_DRAWN, ROW_VISIBLE, ROW_GONE };

struct row {
    enum row_state state;
    instant_us ends_at; /* of the transaction that inserts it */
    bool rolls_back;
    int holder; /* relay that has its lock; -1: nobody */
    unsigned walks;
};

/* Ids are indices: row i has id i + 1. */
struct model {
    struct row rows[ROWS_MAX];
    size_t count;
    int64_t offset; /* added to every id */
};

static struct model model;
static struct rng rng;

static uint64_t below(uint64_t n)
{
    return rng_next(&rng) % n;
}

static int64_t id_of(size_t index)
{
    return (int64_t)index + 1 + model.offset;
}

static void draw_row(instant_us ends_at, bool rolls_back)
{
    ck_assert_uint_lt(model.count, ROWS_MAX);
    model.rows[model.count++] = (struct row){.ends_at = ends_at, .rolls_back = rolls_back, .holder = -1};
}

static void end_transactions(instant_us now)
{
    for (size_t i = 0; i < model.count; i++)
        if (model.rows[i].state == ROW_DRAWN && model.rows[i].ends_at <= now)
            model.rows[i].state = model.rows[i].rolls_back ? ROW_GONE : ROW_VISIBLE;
}

static size_t left(void)
{
    size_t n = 0;
    for (size_t i = 0; i < model.count; i++)
        n += model.rows[i].state != ROW_GONE;
    return n;
}

/* ---- a claim, as sql/claim/lock_ids.sql does it, each row a key of its own ---- */

struct stretch {
    size_t rows[LOOKED];
    size_t count;
};

/* Up to LOOKED visible rows of a range; `down`: from its upper end. */
static struct stretch fetch(struct id_range range, bool down)
{
    struct stretch found = {.count = 0};
    for (size_t n = 0; n < model.count && found.count < LOOKED; n++) {
        size_t i = down ? model.count - 1 - n : n;
        if (id_of(i) < range.lo || id_of(i) > range.hi)
            continue;
        model.rows[i].walks++;
        if (model.rows[i].state == ROW_VISIBLE)
            found.rows[found.count++] = i;
    }
    return found;
}

struct relay {
    struct scan scan;
    size_t held[3 * KEYS];
    size_t held_count;
    instant_us done_at, probe_at;
};

static struct relay relays[RELAYS];

static bool is_taken(const struct relay *relay, size_t row)
{
    for (size_t i = 0; i < relay->held_count; i++)
        if (relay->held[i] == row)
            return true;
    return false;
}

static void miss(struct id_range *missed, int64_t id)
{
    if (missed->lo > missed->hi)
        *missed = (struct id_range){id, id};
    missed->lo = id < missed->lo ? id : missed->lo;
    missed->hi = id > missed->hi ? id : missed->hi;
}

/* Takes rows of one stretch until the claim has `most`; returns how many were tried. */
static size_t take(int me, const struct stretch *stretch, size_t most, struct scan_report *report)
{
    struct relay *relay = &relays[me];
    size_t tried = 0;
    for (; tried < stretch->count && relay->held_count < most; tried++) {
        size_t row = stretch->rows[tried];
        if (is_taken(relay, row))
            continue;
        if (model.rows[row].holder >= 0) {
            miss(&report->missed, id_of(row));
            continue;
        }
        model.rows[row].holder = me;
        relay->held[relay->held_count++] = row;
    }
    return tried;
}

static void see(struct scan_report *report, const struct stretch *stretch)
{
    for (size_t i = 0; i < stretch->count; i++)
        if (id_of(stretch->rows[i]) > report->seen_max)
            report->seen_max = id_of(stretch->rows[i]);
}

static void carry_out(int me, const struct scan_plan *plan, struct scan_report *report)
{
    struct id_range above = {plan->fresh_above, SCAN_ID_MAX};
    if (above.lo < SCAN_ID_MAX)
        above.lo++;
    struct stretch fresh = fetch(above, true), newest = fetch(plan->newest, true), oldest = fetch(plan->oldest, false);
    *report =
        (struct scan_report){.newest_left = {1, 0}, .oldest_left = {1, 0}, .seen_max = SCAN_ID_MIN, .missed = {1, 0}};
    see(report, &fresh);
    see(report, &newest);
    see(report, &oldest);
    size_t low = take(me, &oldest, KEYS / 4, report);
    take(me, &fresh, KEYS, report);
    size_t high = take(me, &newest, KEYS, report);
    /* What was fetched and not tried, or not even fetched, is left. */
    if (low < oldest.count)
        report->oldest_left = (struct id_range){id_of(oldest.rows[low]), plan->oldest.hi};
    else if (oldest.count == LOOKED)
        report->oldest_left = (struct id_range){id_of(oldest.rows[LOOKED - 1]) + 1, plan->oldest.hi};
    if (high < newest.count)
        report->newest_left = (struct id_range){plan->newest.lo, id_of(newest.rows[high])};
    else if (newest.count == LOOKED)
        report->newest_left = (struct id_range){plan->newest.lo, id_of(newest.rows[LOOKED - 1]) - 1};
    report->found = relays[me].held_count > 0;
}

static void let_go(struct relay *relay, bool delivered, instant_us now)
{
    for (size_t i = 0; i < relay->held_count; i++) {
        struct row *row = &model.rows[relay->held[i]];
        int64_t id = id_of(relay->held[i]);
        row->holder = -1;
        if (delivered)
            row->state = ROW_GONE;
        else
            scan_again(&relay->scan, (struct id_range){id, id}, now + (instant_us)below(300) * MS_US);
    }
    relay->held_count = 0;
}

/* ---- horizons ---- */

static struct scan_horizon horizon_now(uint64_t *holders)
{
    struct scan_horizon horizon = {
        .first = 1 + model.offset, .drawn = (int64_t)model.count + model.offset, .holders = holders};
    for (size_t i = 0; i < model.count && horizon.holder_count < SCAN_HOLDERS_MAX; i++)
        if (model.rows[i].state == ROW_DRAWN)
            holders[horizon.holder_count++] = i + 1;
    return horizon;
}

static void probe(struct relay *relay)
{
    uint64_t holders[SCAN_HOLDERS_MAX];
    struct scan_horizon horizon = horizon_now(holders);
    scan_horizon(&relay->scan, &horizon);
    for (size_t i = 0; i < model.count; i++)
        if (model.rows[i].state == ROW_DRAWN)
            ck_assert_int_lt(relay->scan.settled, id_of(i));
}

/* ---- the simulation ---- */

static void start(uint64_t seed, int64_t offset)
{
    rng.state = seed;
    memset(&model, 0, sizeof model);
    memset(relays, 0, sizeof relays);
    model.offset = offset;
    for (size_t i = 0; i < RELAYS; i++)
        scan_init(&relays[i].scan);
}

static void relay_step(int me, instant_us now, unsigned fault_percent)
{
    struct relay *relay = &relays[me];
    if (now >= relay->probe_at) {
        probe(relay);
        relay->probe_at = now + (instant_us)(20 + below(50)) * MS_US;
    }
    if (relay->held_count > 0 && now < relay->done_at)
        return;
    let_go(relay, below(100) >= fault_percent, now);
    struct scan_plan plan;
    struct scan_report report;
    scan_next(&relay->scan, now, &plan);
    if (below(100) < fault_percent) {
        scan_failed(&relay->scan, &plan);
        return;
    }
    carry_out(me, &plan, &report);
    scan_seen(&relay->scan, &plan, &report, (int64_t)below(30) * MS_US, now);
    relay->done_at = now + (instant_us)below(20) * MS_US;
}

static void produce(instant_us now)
{
    for (uint64_t n = below(8); n > 0 && model.count < ROWS_MAX - 8; n--) {
        instant_us lasts = (instant_us)below(below(20) == 0 ? 3000 : 30) * MS_US;
        draw_row(now + lasts, below(10) == 0);
    }
}

START_TEST(every_visible_id_is_taken_in_the_end)
{
    static const int64_t offsets[] = {0, -2000, INT64_MAX - ROWS_MAX - 2, INT64_MIN + 5};
    start((uint64_t)_i + 1, offsets[_i % 4]);
    instant_us now = SECOND_US;
    for (int step = 0; step < 250; step++, now += 3 * MS_US) {
        produce(now);
        end_transactions(now);
        for (int me = 0; me < RELAYS; me++)
            relay_step(me, now, 10);
    }
    instant_us limit = now + 60 * SECOND_US;
    for (; left() > 0; now += 3 * MS_US) {
        ck_assert_msg(now < limit, "%zu rows are left with seed %d", left(), _i + 1);
        end_transactions(now);
        for (int me = 0; me < RELAYS; me++)
            relay_step(me, now, 0);
    }
}
END_TEST

START_TEST(quiet_drain_walks_over_each_id_a_few_times_only)
{
    start(7, 0);
    for (int i = 0; i < ROWS_MAX; i++)
        draw_row(0, false);
    end_transactions(1);
    instant_us now = SECOND_US;
    struct relay *relay = &relays[0];
    probe(relay);
    while (left() > 0) {
        struct scan_plan plan;
        struct scan_report report;
        scan_next(&relay->scan, now, &plan);
        ck_assert(!plan.sweeping);
        carry_out(0, &plan, &report);
        scan_seen(&relay->scan, &plan, &report, 5 * MS_US, now += MS_US);
        let_go(relay, true, now);
    }
    uint64_t walks = 0;
    for (size_t i = 0; i < model.count; i++) {
        walks += model.rows[i].walks;
        ck_assert_uint_le(model.rows[i].walks, 12); /* fetched, and cut off again by KEYS, from both ends */
    }
    ck_assert_uint_le(walks, model.count * 5);
    ck_assert(!scan_pending(&relay->scan, now));
}
END_TEST

START_TEST(dead_ids_are_walked_a_few_times_only)
{
    start(7, 0);
    for (int i = 0; i < ROWS_MAX; i++)
        draw_row(0, i < ROWS_MAX - 100 && i > 100);
    end_transactions(1);
    instant_us now = SECOND_US;
    struct relay *relay = &relays[0];
    probe(relay);
    while (left() > 0) {
        struct scan_plan plan;
        struct scan_report report;
        scan_next(&relay->scan, now, &plan);
        carry_out(0, &plan, &report);
        scan_seen(&relay->scan, &plan, &report, 5 * MS_US, now += MS_US);
        let_go(relay, true, now);
    }
    for (size_t i = 1000; i < 3000; i++)
        ck_assert_uint_le(model.rows[i].walks, 3);
}
END_TEST

START_TEST(sweep_over_dead_ids_takes_a_thousandth_of_the_time)
{
    start(7, 0);
    for (int i = 0; i < ROWS_MAX; i++)
        draw_row(0, true);
    end_transactions(1);
    instant_us now = SECOND_US, end = 100 * SECOND_US, swept_us = 0;
    struct scan *scan = &relays[0].scan;
    probe(&relays[0]);
    uint64_t sweeps = 0;
    for (; now < end; now += 100 * MS_US) {
        struct scan_plan plan;
        struct scan_report report;
        scan_next(scan, now, &plan);
        carry_out(0, &plan, &report);
        int64_t cost_us =
            plan.sweeping ? plan.oldest.hi - (plan.oldest.lo < 1 ? 1 : plan.oldest.lo) : 0; /* 1 us an id */
        scan_seen(scan, &plan, &report, MS_US + cost_us, now);
        swept_us += cost_us;
        sweeps += plan.sweeping;
    }
    ck_assert_int_ge(swept_us, INT64_C(4) * ROWS_MAX); /* over everything, again and again */
    ck_assert_int_le(swept_us, (end - SECOND_US) / 500);
    ck_assert_uint_lt(sweeps, 200);
}
END_TEST

START_TEST(sweep_is_due_until_it_has_been_everywhere_since_something_was_found)
{
    start(7, 0);
    for (int i = 0; i < ROWS_MAX; i++)
        draw_row(0, i != 100);
    end_transactions(1);
    instant_us now = SECOND_US;
    struct scan *scan = &relays[0].scan;
    ck_assert(!scan_sweep_due(scan, now)); /* nothing is known to be settled */
    probe(&relays[0]);
    bool found = false;
    for (int claims = 0; scan_sweep_due(scan, now); claims++) {
        struct scan_plan plan;
        struct scan_report report;
        scan_next(scan, now, &plan);
        carry_out(0, &plan, &report);
        scan_seen(scan, &plan, &report, MS_US, now);
        found = found || report.found;
        let_go(&relays[0], true, now);
        now += SECOND_US;
        ck_assert_int_lt(claims, 100);
    }
    ck_assert(found);
    struct scan_plan nothing = {.fresh_above = ROWS_MAX, .newest = {1, 0}, .oldest = {1, 0}};
    struct scan_report missed = {
        .newest_left = {1, 0}, .oldest_left = {1, 0}, .seen_max = SCAN_ID_MIN, .missed = {7, 7}};
    scan_seen(scan, &nothing, &missed, MS_US, now);
    ck_assert(scan_sweep_due(scan, now));
    scan->sweep_after = now + 1;
    ck_assert(!scan_sweep_due(scan, now)); /* its pause */
}
END_TEST

START_TEST(oldest_event_is_taken_while_producers_outrun_the_relay)
{
    start(3, 0);
    for (int i = 0; i < 400; i++)
        draw_row(0, false);
    instant_us now = SECOND_US;
    struct relay *relay = &relays[0];
    size_t oldest = 0;
    for (int claim = 0; claim < 100; claim++, now += 10 * MS_US) {
        for (size_t i = 0; i < 2 * KEYS; i++)
            draw_row(now, false);
        end_transactions(now);
        probe(relay);
        struct scan_plan plan;
        struct scan_report report;
        scan_next(&relay->scan, now, &plan);
        carry_out(0, &plan, &report);
        ck_assert_int_eq(model.rows[model.count - 1].holder, 0); /* and so is the newest */
        scan_seen(&relay->scan, &plan, &report, 5 * MS_US, now);
        let_go(relay, true, now);
        while (model.rows[oldest].state == ROW_GONE)
            oldest++;
    }
    ck_assert_uint_ge(oldest, 100 * KEYS / 4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scan");
    TCase *tcase = tcase_create("scan");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, every_visible_id_is_taken_in_the_end, 0, 16);
    tcase_add_test(tcase, quiet_drain_walks_over_each_id_a_few_times_only);
    tcase_add_test(tcase, dead_ids_are_walked_a_few_times_only);
    tcase_add_test(tcase, sweep_over_dead_ids_takes_a_thousandth_of_the_time);
    tcase_add_test(tcase, sweep_is_due_until_it_has_been_everywhere_since_something_was_found);
    tcase_add_test(tcase, oldest_event_is_taken_while_producers_outrun_the_relay);
    return run_suite(suite);
}
