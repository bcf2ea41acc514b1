#include "relay/side/unreadable_search.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#include <endian.h>

#define LAST 5000

/* The table has the ids 1 to LAST, and these cannot be read. */
static int64_t bad[64];
static size_t bad_count, statements;
static struct stage stage;
static enum error_kind kind;
static bool known;

static void set_up(void)
{
    stage_init(&stage, "orders");
    static char where[] = "ok";
    stage.config.where = where;
    bad_count = statements = 0;
    kind = ERROR_REFUSED;
    known = false;
}

static void tear_down(void)
{
    stage_done(&stage);
}

static void spoil(int64_t from, int64_t to)
{
    for (int64_t id = from; id <= to; id++)
        bad[bad_count++] = id;
}

static bool is_bad(int64_t id)
{
    for (size_t i = 0; i < bad_count; i++)
        if (bad[i] == id)
            return true;
    return false;
}

static PGresult *row_of(int64_t id)
{
    PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_SINGLE_TUPLE);
    PGresAttDesc column = {.name = (char[]){"id"}, .format = 1, .typlen = 8};
    PQsetResultAttrs(res, 1, &column);
    int64_t big = (int64_t)htobe64((uint64_t)id);
    PQsetvalue(res, 0, 0, (char *)&big, sizeof big);
    return res;
}

static void take(struct unreadable_search *search, int64_t id)
{
    PGresult *res = row_of(id);
    unreadable_search_take(&stage.queue, search, res);
    PQclear(res);
}

static void answer_list(struct unreadable_search *search, struct arena *arena)
{
    struct statement st = unreadable_search_statement(&stage.queue, search, arena);
    int64_t lo = strtoll(st.values[0], NULL, 10), hi = strtoll(st.values[1], NULL, 10),
            most = strtoll(st.values[2], NULL, 10);
    lo = lo < 1 ? 1 : lo;
    hi = hi > LAST ? LAST : hi;
    for (int64_t id = lo; id <= hi && id < lo + most; id++)
        take(search, id);
    unreadable_search_ended(&stage.queue, search, NULL);
}

static void answer_try(struct unreadable_search *search)
{
    const struct halving_part *part = &search->parts.parts[search->parts.count - 1];
    bool failed = false;
    for (size_t i = 0; i < part->count; i++)
        failed = failed || is_bad(search->ids[part->at + i]);
    struct error cause;
    error_set(&cause, kind, "not this one");
    unreadable_search_ended(&stage.queue, search, failed ? &cause : NULL);
}

static void run(struct unreadable_search *search, bool right)
{
    struct arena *arena = arena_new();
    struct error cause;
    error_set(&cause, ERROR_CONFIG, "no such function");
    while (!search->over) {
        statements++;
        ck_assert_uint_lt(statements, 10000);
        if (search->step == SEARCH_NOTHING)
            unreadable_search_ended(&stage.queue, search, right ? NULL : &cause);
        else if (search->step == SEARCH_LIST)
            answer_list(search, arena);
        else if (search->step == SEARCH_TRY)
            answer_try(search);
        else {
            if (known)
                take(search, 1);
            unreadable_search_ended(&stage.queue, search, NULL);
        }
    }
    arena_free(arena);
}

/* Of a claim whose first half has failed in these stretches. */
static struct unreadable_search *search_in(int64_t fresh_above, int64_t lo, int64_t hi)
{
    stage.claim.plan = (struct claim_plan){.scan = {.fresh_above = fresh_above, .newest = {1, 0}, .oldest = {lo, hi}},
                                           .key_limit = 16};
    struct unreadable_search *search = unreadable_search_claim(&stage.config, &stage.claim.plan);
    ck_assert_ptr_nonnull(search);
    return search;
}

static void has_found(const struct unreadable_search *search)
{
    ck_assert(search->blames);
    ck_assert_uint_eq(search->found_count, bad_count);
    for (size_t i = 0; i < search->found_count; i++)
        ck_assert(is_bad(search->found[i].id));
}

START_TEST(one_row_among_thousands_is_found_in_a_few_statements)
{
    spoil(3210, 3210);
    struct unreadable_search *search = search_in(4000, 1, 4000);
    run(search, true);
    has_found(search);
    ck_assert_uint_lt(statements, 40);
    unreadable_search_free(search);
}
END_TEST

START_TEST(what_is_found_is_found_outside_of_where_the_claim_has_looked_too)
{
    spoil(7, 9);
    struct unreadable_search *search = search_in(4900, 4000, 4100);
    run(search, true);
    has_found(search);
    unreadable_search_free(search);
}
END_TEST

START_TEST(a_statement_that_fails_without_rows_blames_none)
{
    spoil(1, 5);
    struct unreadable_search *search = search_in(0, 1, 0);
    run(search, false);
    ck_assert_uint_eq(statements, 1);
    ck_assert(!search->blames);
    ck_assert_uint_eq(search->found_count, 0);
    unreadable_search_free(search);
}
END_TEST

/* Whole tables of rows that cannot be read: by ids, so that a claim's stretch has no others. */
START_TEST(where_nothing_passes_the_rows_are_to_blame_only_if_others_have_been_before)
{
    static const struct {
        bool read_some, known, blames;
        enum error_kind kind;
    } cases[] = {{false, false, false, ERROR_REFUSED},
                 {true, false, true, ERROR_REFUSED},
                 {false, true, true, ERROR_REFUSED},
                 {true, false, false, ERROR_CONFIG},
                 {true, true, true, ERROR_CONFIG}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        statements = bad_count = 0;
        spoil(1, 8);
        kind = cases[i].kind;
        known = cases[i].known;
        stage.queue.unreadable.read_some = cases[i].read_some;
        struct unreadable_search *search = unreadable_search_again(bad, bad_count);
        search->again = false; /* as if these were all that a list has */
        search->listed = 0;
        search->most = 1;
        run(search, true);
        ck_assert_uint_eq(search->found_count, bad_count);
        ck_assert_msg(search->blames == cases[i].blames, "case %zu", i);
        unreadable_search_free(search);
    }
}
END_TEST

START_TEST(rows_that_are_known_are_not_tried_when_others_are_sought)
{
    spoil(100, 103);
    stage.queue.unreadable.ids = bad;
    stage.queue.unreadable.count = bad_count;
    struct unreadable_search *search = search_in(0, 1, 0);
    run(search, true);
    ck_assert(!search->blames);
    ck_assert_uint_eq(search->found_count, 0);
    unreadable_search_free(search);
    search = unreadable_search_again(bad, bad_count);
    bad_count = 2;
    run(search, true);
    ck_assert_uint_eq(search->found_count, 2);
    unreadable_search_free(search);
    stage.queue.unreadable.count = 0;
}
END_TEST

/* A claim that has locked keys: of each its own rows are tried, up to the first that cannot be read. */
START_TEST(the_keys_that_a_claim_has_locked_are_tried_one_by_one)
{
    spoil(40, 40);
    stage.config.where = NULL;
    stage.claim.plan =
        (struct claim_plan){.locked_keys = SPAN_LITERAL("{a,\"b c\"}"), .locked_keyless_ids = SPAN_LITERAL("{40,41}")};
    struct unreadable_search *search = unreadable_search_claim(&stage.config, &stage.claim.plan);
    ck_assert_ptr_nonnull(search);
    run(search, true);
    ck_assert(search->blames);
    for (size_t i = 0; i < search->found_count; i++)
        ck_assert_int_eq(search->found[i].id, 40);
    unreadable_search_free(search);

    stage.claim.plan = (struct claim_plan){.scan = {.newest = {1, 0}, .oldest = {1, 0}}};
    ck_assert_ptr_null(unreadable_search_claim(
        &stage.config, &stage.claim.plan)); /* without a condition no row is to blame for that */
}
END_TEST

START_TEST(a_settlement_is_searched_for_the_rows_behind_it)
{
    struct settlement s = {0};
    ck_assert_ptr_null(unreadable_search_settlement(&s));
    struct span key = SPAN_LITERAL("a");
    s.resumed_keys = &key;
    s.resumed_key_count = 1;
    spoil(1001, 1001);
    struct unreadable_search *search = unreadable_search_settlement(&s);
    run(search, true);
    has_found(search);
    unreadable_search_free(search);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unreadable_search");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, one_row_among_thousands_is_found_in_a_few_statements);
    tcase_add_test(tcase, what_is_found_is_found_outside_of_where_the_claim_has_looked_too);
    tcase_add_test(tcase, a_statement_that_fails_without_rows_blames_none);
    tcase_add_test(tcase, where_nothing_passes_the_rows_are_to_blame_only_if_others_have_been_before);
    tcase_add_test(tcase, rows_that_are_known_are_not_tried_when_others_are_sought);
    tcase_add_test(tcase, the_keys_that_a_claim_has_locked_are_tried_one_by_one);
    tcase_add_test(tcase, a_settlement_is_searched_for_the_rows_behind_it);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
