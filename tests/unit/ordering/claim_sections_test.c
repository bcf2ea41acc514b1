/* Which statements lock the keys of a claim, and what each of them is asked. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/sections_stage.h"

static void expect_sections(const struct claim_section *expected, size_t count)
{
    ck_assert_uint_eq(plan.section_count, count);
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(plan.sections[i].kind, expected[i].kind);
        ck_assert_int_eq(plan.sections[i].keys, expected[i].keys);
        ck_assert_int_eq(plan.sections[i].rows, expected[i].rows);
    }
}

#define EXPECT_SECTIONS(...)                                                                                           \
    expect_sections((const struct claim_section[]){__VA_ARGS__},                                                       \
                    sizeof(const struct claim_section[]){__VA_ARGS__} / sizeof(struct claim_section))

/* ---- which sections, in which order, for how many keys and rows ---- */

START_TEST(all_sections_have_an_order)
{
    const struct span follow[] = {SPAN_LITERAL("f"), SPAN_LITERAL("g")};
    struct claim_request request = plain;
    request.follow_keys = follow;
    request.follow_key_count = 2;
    ask(&request, high, low);
    EXPECT_SECTIONS({SECTION_NAMED, 2, 0}, {SECTION_DUE, 2, 0}, {SECTION_OLDEST, 1, 4}, {SECTION_FRESH, 10, 13},
                    {SECTION_NEWEST, 10, 13});
}
END_TEST

/* Without waits and names. */
START_TEST(oldest_end_has_its_share_of_keys_and_rows)
{
    static const struct {
        int64_t share;
        struct id_range newest, oldest;
        struct claim_section expected[3];
        size_t count;
    } cases[] = {
        {20, {500, 999}, {1, 400}, {{SECTION_OLDEST, 2, 4}, {SECTION_FRESH, 10, 13}, {SECTION_NEWEST, 10, 13}}, 3},
        {50, {500, 999}, {1, 400}, {{SECTION_OLDEST, 5, 8}, {SECTION_FRESH, 10, 9}, {SECTION_NEWEST, 10, 9}}, 3},
        /* one key at least */
        {5, {500, 999}, {1, 400}, {{SECTION_OLDEST, 1, 1}, {SECTION_FRESH, 10, 16}, {SECTION_NEWEST, 10, 16}}, 3},
        /* what is left of the others */
        {0, {500, 999}, {1, 400}, {{SECTION_FRESH, 10, 16}, {SECTION_NEWEST, 10, 16}, {SECTION_OLDEST, 10, 1}}, 3},
        {100, {500, 999}, {1, 400}, {{SECTION_OLDEST, 10, 16}, {SECTION_FRESH, 10, 1}, {SECTION_NEWEST, 10, 1}}, 3},
        /* few ids: the newest have the rows */
        {20, {500, 999}, {9, 9}, {{SECTION_OLDEST, 2, 2}, {SECTION_FRESH, 10, 15}, {SECTION_NEWEST, 10, 15}}, 3},
        /* one end alone, which may be the sweep's */
        {20, {500, 999}, {1, 0}, {{SECTION_FRESH, 10, 15}, {SECTION_NEWEST, 10, 15}}, 2},
        {20, {1, 0}, {1, 400}, {{SECTION_FRESH, 8, 15}, {SECTION_OLDEST, 10, 15}}, 2},
        {0, {1, 0}, {1, 400}, {{SECTION_FRESH, 10, 15}, {SECTION_OLDEST, 10, 15}}, 2},
        {100, {1, 0}, {1, 400}, {{SECTION_OLDEST, 10, 15}, {SECTION_FRESH, 10, 15}}, 2},
        {20, {1, 0}, {1, 0}, {{SECTION_FRESH, 10, 15}}, 1},
    };
    sections.waits = false;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options.oldest_share = cases[i].share;
        ask(&plain, cases[i].newest, cases[i].oldest);
        expect_sections(cases[i].expected, cases[i].count);
    }
}
END_TEST

START_TEST(rows_that_the_oldest_end_has_no_ids_for_go_to_the_newest)
{
    static const struct {
        struct id_range newest, oldest;
        int64_t newest_rows, oldest_rows;
        bool both;
    } cases[] = {{{500, 999}, {1, 400}, 80, 20, true},
                 {{500, 999}, {1, 20}, 80, 20, true},
                 {{500, 999}, {1, 19}, 81, 19, true},
                 {{500, 999}, {7, 7}, 99, 1, true},
                 {{500, 500}, {1, 400}, 80, 20, true},
                 {{500, 999}, {SCAN_ID_MIN, 400}, 80, 20, true},
                 {{500, 999}, {SCAN_ID_MAX, SCAN_ID_MAX}, 80, 20, true},
                 {{500, 999}, {1, 0}, 100, 100, false},
                 {{1, 0}, {1, 400}, 100, 100, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct scan_plan scan = {.newest = cases[i].newest, .oldest = cases[i].oldest};
        int64_t newest, oldest;
        ck_assert(claim_rows_split(&scan, 100, 20, &newest, &oldest) == cases[i].both);
        ck_assert_int_eq(newest, cases[i].newest_rows);
        ck_assert_int_eq(oldest, cases[i].oldest_rows);
    }
}
END_TEST

START_TEST(behind_a_slow_sink_more_rows_are_looked_at_for_as_many_keys)
{
    struct claim_request request = plain;
    request.behind = true;
    sections.waits = false;
    ask(&request, high, low);
    EXPECT_SECTIONS({SECTION_FRESH, 8, 37}, {SECTION_NEWEST, 8, 37}, {SECTION_OLDEST, 10, 9});
}
END_TEST

static bool asks_for_the_first(enum claim_section_kind kind)
{
    const char *sql = statements[section(kind)].sql;
    bool late = strstr(sql, "(is_late) as late") != NULL;
    ck_assert_int_eq(late, strstr(sql, "has_more") != NULL);
    return late;
}

START_TEST(behind_a_slow_sink_keys_whose_first_event_is_there_come_first)
{
    struct claim_request request = plain;
    ask(&request, high, low);
    ck_assert(!asks_for_the_first(SECTION_FRESH));
    request.behind = true;
    ask(&request, high, low);
    ck_assert(asks_for_the_first(SECTION_FRESH) && asks_for_the_first(SECTION_NEWEST));
    ck_assert(!asks_for_the_first(SECTION_OLDEST));
    ask(&request, high, nothing); /* then nothing else would have their first events */
    ck_assert(!asks_for_the_first(SECTION_FRESH) && !asks_for_the_first(SECTION_NEWEST));
    options.key_index = false; /* each key would be looked for in the whole table */
    ask(&request, high, low);
    ck_assert(!asks_for_the_first(SECTION_FRESH));
}
END_TEST

START_TEST(more_rows_are_looked_at_after_a_claim_that_was_thin)
{
    ask(&plain, high, nothing);
    int64_t before = section_parameter(SECTION_NEWEST, 3);
    claim_rows_done(&rows, &(struct claim_plan){.thin = true});
    ask(&plain, high, nothing);
    ck_assert_int_gt(section_parameter(SECTION_NEWEST, 3), before);
    ck_assert_int_eq(section_parameter(SECTION_NEWEST, 4), 10);
}
END_TEST

START_TEST(chance_decides_what_takes_the_one_place_of_a_claim)
{
    int oldest = 0, last = 0;
    for (uint64_t draw = 0; draw < 200; draw++) {
        struct claim_request request = {.max_keys = 1, .events_per_key = 4, .draw = draw};
        ask(&request, high, low);
        ck_assert_uint_eq(plan.section_count, 4);
        bool waits_last = plan.sections[3].kind == SECTION_DUE;
        ck_assert(waits_last || plan.sections[0].kind == SECTION_DUE);
        for (size_t i = 0; i < plan.section_count; i++) {
            ck_assert_int_eq(plan.sections[i].keys, 1);
            ck_assert_int_eq(parameter(i, plan.sections[i].kind == SECTION_DUE ? 2 : 5), 1);
        }
        ck_assert_int_eq(section_parameter(SECTION_DUE, 6), waits_last);
        oldest += section(SECTION_OLDEST) < section(SECTION_FRESH);
        last += waits_last;
    }
    ck_assert_int_eq(oldest, 40);
    ck_assert_int_eq(last, 100);
    sections.waits = false;
    ask(&(struct claim_request){.max_keys = 1, .draw = 1}, high, low);
    ck_assert(!has_section(SECTION_DUE));
    sections.waits = true;
    struct claim_request request = {.max_keys = 2, .events_per_key = 4, .draw = 1};
    ask(&request, high, low);
    ck_assert_uint_eq(section(SECTION_DUE), 0);
    ck_assert_int_eq(plan.sections[section(SECTION_OLDEST)].keys, 1);
}
END_TEST

START_TEST(claim_of_followed_keys_looks_for_waits_that_are_over_and_no_others)
{
    const struct span follow[] = {SPAN_LITERAL("f")};
    struct claim_request request = plain;
    request.followed_only = true;
    request.follow_keys = follow;
    request.follow_key_count = 1;
    ask(&request, nothing, nothing);
    EXPECT_SECTIONS({SECTION_NAMED, 1, 0}, {SECTION_DUE, 2, 0});
    sections.waits = false;
    ask(&request, nothing, nothing);
    EXPECT_SECTIONS({SECTION_NAMED, 1, 0});
}
END_TEST

START_TEST(claim_that_has_nothing_to_look_at_leaves_no_names)
{
    struct claim_request request = plain;
    request.followed_only = true;
    sections.waits = false;
    ask(&request, nothing, nothing);
    EXPECT_SECTIONS({SECTION_NAMED, 0, 0});
    struct statement none = statement_of("select");
    statement_add_texts(&none, arena, NULL, 0);
    ck_assert_int_eq(statements[0].lengths[0], none.lengths[0]);
    ck_assert_mem_eq(statements[0].values[0], none.values[0], (size_t)none.lengths[0]);
}
END_TEST

/* ---- waits ---- */

static PGresult *row_with_waits(int64_t waits)
{
    PGresult *res = lock_row();
    set_bigint(res, 0, WAITS, waits);
    return res;
}

START_TEST(waits_are_looked_for_until_none_was_there)
{
    ask(&plain, nothing, nothing);
    ck_assert(has_section(SECTION_DUE)); /* nothing is known yet */
    ck_assert(take(SECTION_DUE, lock_row()));
    ck_assert(take(SECTION_FRESH, row_with_waits(1)));
    ask(&plain, nothing, nothing);
    ck_assert(has_section(SECTION_DUE));
    ck_assert(take(SECTION_FRESH, row_with_waits(0)));
    ask(&plain, nothing, nothing);
    ck_assert(!has_section(SECTION_DUE));
    ck_assert(take(SECTION_FRESH, row_with_waits(65)));
    ask(&plain, nothing, nothing);
    ck_assert(has_section(SECTION_DUE));
}
END_TEST

START_TEST(only_what_looks_at_ids_tells_of_waits)
{
    const struct span follow[] = {SPAN_LITERAL("f")};
    struct claim_request request = plain;
    request.follow_keys = follow;
    request.follow_key_count = 1;
    for (int waits = 1; waits >= 0; waits--) {
        ask(&request, nothing, nothing);
        ck_assert(take(SECTION_FRESH, row_with_waits(waits)));
        ck_assert(take(SECTION_NAMED, lock_row()));
        ask(&request, nothing, nothing);
        ck_assert(has_section(SECTION_DUE) == (waits == 1));
    }
    sections.waits = true;
    ask(&request, nothing, nothing);
    ck_assert(take(SECTION_DUE, lock_row()));
    ck_assert(sections.waits);
}
END_TEST

START_TEST(every_fourth_key_at_most_is_one_that_has_waited)
{
    static const struct {
        int64_t keys, due;
    } cases[] = {{1, 1}, {3, 1}, {7, 1}, {8, 2}, {100, 25}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ask(&(struct claim_request){.max_keys = cases[i].keys}, nothing, nothing);
        ck_assert_int_eq(section_parameter(SECTION_DUE, 1), cases[i].due);
        ck_assert_int_eq(section_parameter(SECTION_DUE, 2), cases[i].keys);
    }
}
END_TEST

/* ---- what each statement is asked ---- */

/* Parameters from `first` on are the busy keys and events of this request. */
static void expect_busy(const struct statement *st, int first, const struct claim_request *request)
{
    struct statement busy = statement_of("select");
    statement_add_texts(&busy, arena, request->busy_keys, request->busy_key_count);
    statement_add_ids(&busy, arena, request->busy_keyless_ids, request->busy_keyless_count);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(st->formats[first - 1 + i], 1);
        ck_assert_int_eq(st->lengths[first - 1 + i], busy.lengths[i]);
        ck_assert(memcmp(st->values[first - 1 + i], busy.values[i], (size_t)busy.lengths[i]) == 0);
    }
}

static void expect_ids(enum claim_section_kind kind, struct id_range ids, const struct claim_request *request)
{
    const size_t i = section(kind);
    const struct statement *st = &statements[i];
    ck_assert_int_eq(st->count, 10);
    expect_range(ids_of(kind), ids.lo, ids.hi);
    ck_assert_int_eq(parameter(i, 3), plan.sections[i].rows);
    ck_assert_int_eq(parameter(i, 4), plan.sections[i].keys);
    ck_assert_int_eq(parameter(i, 5), request->max_keys);
    ck_assert_str_eq(st->values[5], "orders");
    expect_busy(st, 7, request);
    ck_assert_int_eq(parameter(i, 9), i > 0);
    ck_assert_int_eq(parameter(i, 10), FLOOR_ID);
    ck_assert((strstr(st->sql, " desc") != NULL) == (kind != SECTION_OLDEST));
    ck_assert((strstr(st->sql, " asc") != NULL) == (kind == SECTION_OLDEST));
}

START_TEST(sections_of_ids_are_asked_for_their_stretch_from_its_end)
{
    const struct span keys[] = {SPAN_LITERAL("b"), SPAN_LITERAL("c")};
    const int64_t ids[] = {3};
    struct claim_request request = plain;
    request.busy_keys = keys;
    request.busy_key_count = 2;
    request.busy_keyless_ids = ids;
    request.busy_keyless_count = 1;
    for (int waits = 0; waits < 2; waits++) { /* then it is not the first of the sections */
        sections.waits = waits;
        ask(&request, high, low);
        ck_assert_uint_eq(section(SECTION_OLDEST), (size_t)waits);
        expect_ids(SECTION_FRESH, (struct id_range){FRESH_ABOVE + 1, SCAN_ID_MAX}, &request);
        expect_ids(SECTION_NEWEST, high, &request);
        expect_ids(SECTION_OLDEST, low, &request);
    }
}
END_TEST

START_TEST(nothing_is_new_above_the_greatest_id)
{
    plan = (struct claim_plan){.scan = {.fresh_above = SCAN_ID_MAX, .newest = nothing, .oldest = nothing}};
    plan.floor = FLOOR_ID;
    claim_sections_ask(&sections, &plain, &plan, arena, statements);
    expect_range(ids_of(SECTION_FRESH), SCAN_ID_MAX, SCAN_ID_MAX);
}
END_TEST

START_TEST(waits_that_are_over_and_followed_keys_are_asked_for_by_what_they_are)
{
    const struct span follow[] = {SPAN_LITERAL("f")}, busy[] = {SPAN_LITERAL("b")};
    const int64_t ids[] = {3};
    struct claim_request request = plain;
    request.busy_keys = busy;
    request.busy_key_count = 1;
    request.busy_keyless_ids = ids;
    request.busy_keyless_count = 1;
    ask(&request, high, nothing);
    const struct statement *due = &statements[section(SECTION_DUE)];
    ck_assert_int_eq(due->count, 6);
    ck_assert_int_eq(section_parameter(SECTION_DUE, 1), 2);
    ck_assert_int_eq(section_parameter(SECTION_DUE, 2), 10);
    ck_assert_str_eq(due->values[2], "orders");
    expect_busy(due, 4, &request);
    ck_assert_int_eq(section_parameter(SECTION_DUE, 6), 0);
    request.follow_keys = follow;
    request.follow_key_count = 1;
    ask(&request, high, nothing);
    ck_assert_int_eq(section_parameter(SECTION_DUE, 6), 1);
    const struct statement *named = &statements[section(SECTION_NAMED)];
    struct statement names = statement_of("select");
    statement_add_texts(&names, arena, follow, 1);
    ck_assert_int_eq(named->count, 2);
    ck_assert_int_eq(named->lengths[0], names.lengths[0]);
    ck_assert_mem_eq(named->values[0], names.values[0], (size_t)names.lengths[0]);
    ck_assert_str_eq(named->values[1], "orders");
}
END_TEST

/* ---- their texts ---- */

START_TEST(sections_do_not_open_without_a_word_of_their_statements)
{
    struct sql_variable some[sizeof variables / sizeof variables[0]];
    size_t refused = 0;
    for (size_t left_out = 0; variables[left_out].name; left_out++) {
        memcpy(some, variables, sizeof some);
        memmove(&some[left_out], &some[left_out + 1], sizeof some - (left_out + 1) * sizeof some[0]);
        struct ordering_options fewer = options;
        fewer.variables = some;
        struct claim_sections other;
        if (!claim_sections_init(&other, &fewer, &rows, &err)) {
            refused++;
            ck_assert_msg(strstr(err.text, variables[left_out].name) != NULL, "%s", err.text);
        }
        claim_sections_done(&other);
    }
    ck_assert_uint_gt(refused, 7);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("claim_sections");
    TCase *tcase = tcase_create("claim_sections");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up_sections, tear_down_sections);
    tcase_add_test(tcase, all_sections_have_an_order);
    tcase_add_test(tcase, oldest_end_has_its_share_of_keys_and_rows);
    tcase_add_test(tcase, rows_that_the_oldest_end_has_no_ids_for_go_to_the_newest);
    tcase_add_test(tcase, behind_a_slow_sink_more_rows_are_looked_at_for_as_many_keys);
    tcase_add_test(tcase, behind_a_slow_sink_keys_whose_first_event_is_there_come_first);
    tcase_add_test(tcase, more_rows_are_looked_at_after_a_claim_that_was_thin);
    tcase_add_test(tcase, chance_decides_what_takes_the_one_place_of_a_claim);
    tcase_add_test(tcase, claim_of_followed_keys_looks_for_waits_that_are_over_and_no_others);
    tcase_add_test(tcase, claim_that_has_nothing_to_look_at_leaves_no_names);
    tcase_add_test(tcase, waits_are_looked_for_until_none_was_there);
    tcase_add_test(tcase, only_what_looks_at_ids_tells_of_waits);
    tcase_add_test(tcase, every_fourth_key_at_most_is_one_that_has_waited);
    tcase_add_test(tcase, sections_of_ids_are_asked_for_their_stretch_from_its_end);
    tcase_add_test(tcase, nothing_is_new_above_the_greatest_id);
    tcase_add_test(tcase, waits_that_are_over_and_followed_keys_are_asked_for_by_what_they_are);
    tcase_add_test(tcase, sections_do_not_open_without_a_word_of_their_statements);
    return run_suite(suite);
}
