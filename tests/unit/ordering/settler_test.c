/* Which statement takes delivered events out of their table, and how it is told which. */
#include "ordering/settler.h"

#include "tests/support/run_suite.h"

#include <string.h>

static const struct sql_variable variables[] = {
    {"table", "t"},
    {"table_name", "'t'"},
    {"table_class", "'t'::regclass"},
    {"where", "true"},
    {"id", "e.id"},
    {"key", "e.k"},
    {"type", "e.t"},
    {"created_at", "e.at"},
    {"key_type", "bigint"},
    {"state", "outbox"},
    {"deleted", "with deleted as (delete from t e returning e.id as id)"},
    {"placed", "with deleted as (delete from only t e returning e.id as id)"},
    {"behind_entry", "true"},
    {"key_all", "true"},
    {"key_all_order", "e.id"},
    {"next_table", "n"},
    {"next_table_name", "'n'"},
    {"next_columns", "\"nk\""},
    {"next_values", "g.key"},
    {"responses", " join r"},
    {"queue_name", "'orders'"},
    {NULL, NULL},
};

static const struct {
    bool archive, hand_on, responses;
    int parameters;
} ways[] = {{false, false, false, 2}, {true, false, false, 3}, {false, true, false, 2},
            {true, true, false, 2},   {false, true, true, 3},  {true, true, true, 3}};

START_TEST(what_was_delivered_goes_where_it_is_wanted)
{
    struct error err;
    struct settler settler;
    struct arena *arena = arena_new();
    struct statement statements[ORDERING_STATEMENTS_MAX];
    struct ordering_options options = {
        .queue = "orders", .variables = variables, .archive = ways[_i].archive, .hand_on = ways[_i].hand_on};
    ck_assert_msg(settler_init(&settler, &options, &err), "%s", err.text);
    const int64_t done[] = {1};
    const struct span responses[] = {SPAN_LITERAL("{}")};
    const struct settlement s = {.done = done, .done_count = 1, .responses = ways[_i].responses ? responses : NULL};
    ck_assert_uint_eq(settler_settle(&settler, &s, arena, statements), 2);
    ck_assert_int_eq(strstr(statements[0].sql, "insert into outbox.archive") != NULL, ways[_i].archive);
    ck_assert_int_eq(strstr(statements[0].sql, "insert into n (\"nk\")") != NULL, ways[_i].hand_on);
    ck_assert_int_eq(statements[0].count, ways[_i].parameters);
    settler_done(&settler);
    arena_free(arena);
}
END_TEST

static size_t settle(const struct settlement *s, struct arena *arena, struct statement *ret)
{
    struct error err;
    struct settler settler;
    struct ordering_options options = {
        .queue = "orders", .variables = variables, .hand_on = s->responses != NULL, .places = true};
    ck_assert_msg(settler_init(&settler, &options, &err), "%s", err.text);
    size_t count = settler_settle(&settler, s, arena, ret);
    for (size_t i = 0; i < count; i++)
        ret[i].sql = arena_printf(arena, "%s", ret[i].sql);
    settler_done(&settler);
    return count;
}

static bool has_values_of(const struct statement *st, const struct statement *due)
{
    for (int i = 0; i < due->count; i++)
        if (st->lengths[i] != due->lengths[i] || memcmp(st->values[i], due->values[i], (size_t)due->lengths[i]) != 0)
            return false;
    return true;
}

START_TEST(rows_with_a_place_go_by_it_and_need_no_look_at_what_has_stayed)
{
    struct arena *arena = arena_new();
    struct statement statements[ORDERING_STATEMENTS_MAX];
    const int64_t done[] = {1, 2, 3};
    const uint64_t tids[] = {0x20001, 0x10002, 0x10001};
    struct settlement s = {.done = done, .tids = tids, .done_count = 3};
    ck_assert_uint_eq(settle(&s, arena, statements), 1);
    ck_assert_ptr_nonnull(strstr(statements[0].sql, "from only t"));
    struct statement due = statement_of("");
    statement_add_ids(&due, arena, (const int64_t[]){3, 2, 1}, 3);
    statement_add_tids(&due, arena, (const uint64_t[]){0x10001, 0x10002, 0x20001}, 3);
    ck_assert(has_values_of(&statements[0], &due));
    s.tids = NULL;
    ck_assert_uint_eq(settle(&s, arena, statements), 2);
    ck_assert_ptr_null(strstr(statements[0].sql, "from only t"));
    arena_free(arena);
}
END_TEST

START_TEST(answers_go_along_with_their_rows)
{
    struct arena *arena = arena_new();
    struct statement statements[ORDERING_STATEMENTS_MAX];
    const int64_t done[] = {1, 2};
    const uint64_t tids[] = {0x10002, 0x10001};
    const struct span responses[] = {SPAN_LITERAL("1"), SPAN_LITERAL("2")};
    struct settlement s = {.done = done, .tids = tids, .done_count = 2, .responses = responses};
    settle(&s, arena, statements);
    struct statement due = statement_of("");
    statement_add_ids(&due, arena, (const int64_t[]){2, 1}, 2);
    statement_add_tids(&due, arena, (const uint64_t[]){0x10001, 0x10002}, 2);
    statement_add_bytes(&due, arena, (const struct span[]){responses[1], responses[0]}, 2);
    ck_assert(has_values_of(&statements[0], &due));
    arena_free(arena);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("settler");
    TCase *tcase = tcase_create("settler");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, what_was_delivered_goes_where_it_is_wanted, 0, sizeof ways / sizeof ways[0]);
    tcase_add_test(tcase, rows_with_a_place_go_by_it_and_need_no_look_at_what_has_stayed);
    tcase_add_test(tcase, answers_go_along_with_their_rows);
    return run_suite(suite);
}
