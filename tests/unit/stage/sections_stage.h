/* tests/unit/stage/sections_stage.h -- the sections of a claim by themselves.
 *
 *   set_up_sections -> (ask -> take per section)* -> tear_down_sections */
#ifndef TESTS_UNIT_SECTIONS_STAGE_H
#define TESTS_UNIT_SECTIONS_STAGE_H

#include "ordering/claim_sections.h"
#include "tests/unit/stage/per_key_stage.h"

#define FLOOR_ID INT64_C(77)
#define FRESH_ABOVE INT64_C(1000)

static const struct id_range nothing = {1, 0}, low = {1, 400}, high = {500, 999};
static const struct claim_request plain = {.max_keys = 10, .events_per_key = 4};

static struct ordering_options options;
static struct claim_sections sections;
static struct claim_rows rows;

static inline void set_up_sections(void)
{
    set_up();
    options = options_with(true, false);
    ck_assert(claim_sections_init(&sections, &options, &rows, &err));
    claim_rows_init(&rows);
}

static inline void tear_down_sections(void)
{
    claim_sections_done(&sections);
    tear_down();
}

static inline void ask(const struct claim_request *request, struct id_range newest, struct id_range oldest)
{
    plan = (struct claim_plan){.scan = {.fresh_above = FRESH_ABOVE, .newest = newest, .oldest = oldest},
                               .report = scan_saw_nothing,
                               .floor = FLOOR_ID};
    claim_sections_ask(&sections, request, &plan, arena, statements);
}

static inline bool take(enum claim_section_kind kind, PGresult *res)
{
    bool ok = claim_section_locked(&sections, &plan, section(kind), res, arena, &err);
    PQclear(res);
    return ok;
}

static inline void expect_range(struct id_range range, int64_t lo, int64_t hi)
{
    ck_assert_int_eq(range.lo, lo);
    ck_assert_int_eq(range.hi, hi);
}

#endif
