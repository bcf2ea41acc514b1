#include "relay/base/statement.h"

#include "relay/base/backoff.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#include <endian.h>
#include <stdlib.h>

static const struct sql_variable variables[] = {
    {"table", "\"public\".\"events\""},
    {"table_two", "two"},
    {"id", "e.id"},
    {"key", "e.\"k\""},
    {"empty", ""},
    {NULL, NULL},
};

START_TEST(names_are_replaced_outside_quotes_and_comments)
{
    static const char *const rows[][2] = {
        {"select :id from :table e", "select e.id from \"public\".\"events\" e"},
        {":table_two:table", "two\"public\".\"events\""},
        {":id::text", "e.id::text"},
        {"x::id", "x::id"},
        {":key:::id", "e.\"k\"::e.id"},
        {"':id' || \":id\" || :id", "':id' || \":id\" || e.id"},
        {"'it''s :id' :id", "'it''s :id' e.id"},
        {"a -- :unknown 'quote\nb", "a \nb"},
        {"1 - -:id", "1 - -e.id"},
        {"a[1:2]", "a[1:2]"},
        {"a := 1", "a := 1"},
        {"'open :id", "'open :id"},
        {":empty", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err = {.text = ""};
        char *sql = sql_render(rows[i][0], variables, &err);
        ck_assert_msg(sql && strcmp(sql, rows[i][1]) == 0, "%s -> %s (%s)", rows[i][0], sql, err.text);
        free(sql);
    }
}
END_TEST

START_TEST(unknown_name_is_an_error_that_names_it)
{
    static const char *const rows[][2] = {
        {"select :nothing", ":nothing"},
        {":tables", ":tables"},
        {":i", ":i"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err;
        ck_assert_ptr_null(sql_render(rows[i][0], variables, &err));
        ck_assert_int_eq(err.kind, ERROR_INTERNAL);
        ck_assert_msg(strstr(err.text, rows[i][1]) != NULL, "%s", err.text);
    }
}
END_TEST

START_TEST(variables_come_before_those_that_they_are_added_to)
{
    const struct sql_variable more[] = {{"order", "desc"}, {"id", "other"}, {NULL, NULL}}, none[] = {{NULL, NULL}};
    static const char template[] = ":id :order :table_two:empty";
    struct error err = {.text = ""};
    struct arena *arena = arena_new();
    char *sql = sql_render(template, sql_variables_with(variables, more, arena), &err);
    ck_assert_str_eq(sql, "other desc two");
    free(sql);
    sql = sql_render(":id", sql_variables_with(variables, none, arena), &err);
    ck_assert_str_eq(sql, "e.id");
    free(sql);
    sql = sql_render(":id", sql_variables_with(none, more, arena), &err);
    ck_assert_str_eq(sql, "other");
    free(sql);
    ck_assert_ptr_null(sql_render(":table", sql_variables_with(none, more, arena), &err));
    ck_assert_ptr_null(sql_variables_with(none, none, arena)[0].name);
    arena_free(arena);
}
END_TEST

START_TEST(long_texts_are_rendered_whole)
{
    static const size_t count = 10000;
    char *template = memory_new(count * 4 + 1), *end = template;
    for (size_t i = 0; i < count; i++)
        end = stpcpy(end, ":id ");
    struct error err;
    char *sql = sql_render(template, variables, &err);
    ck_assert_uint_eq(strlen(sql), count * 5);
    free(sql);
    free(template);
}
END_TEST

/* ---- parameters ---- */

static struct arena *arena;
static struct statement st;

static void set_up(void)
{
    arena = arena_new();
    st = statement_of("select");
}

static void tear_down(void)
{
    arena_free(arena);
}

struct reader {
    const char *p, *end;
};

static uint32_t read32(struct reader *reader)
{
    uint32_t value;
    ck_assert_int_ge(reader->end - reader->p, 4);
    memcpy(&value, reader->p, sizeof value);
    reader->p += sizeof value;
    return be32toh(value);
}

/* Reads the header as array_recv() does; returns the number of elements. */
static size_t read_header(struct reader *reader, uint32_t has_null, uint32_t oid)
{
    reader->p = st.values[0];
    reader->end = reader->p + st.lengths[0];
    uint32_t dimensions = read32(reader);
    ck_assert_uint_eq(read32(reader), has_null);
    ck_assert_uint_eq(read32(reader), oid);
    if (dimensions == 0)
        return 0;
    size_t count = read32(reader);
    ck_assert_uint_eq(dimensions, 1);
    ck_assert_uint_eq(read32(reader), 1);
    return count;
}

START_TEST(array_of_ids_decodes)
{
    const int64_t ids[] = {0, 1, -1, INT64_MAX, INT64_MIN};
    statement_add_ids(&st, arena, ids, 5);
    ck_assert_int_eq(st.count, 1);
    ck_assert_int_eq(st.formats[0], 1);
    struct reader reader;
    ck_assert_uint_eq(read_header(&reader, 0, 20), 5);
    for (size_t i = 0; i < 5; i++) {
        ck_assert_uint_eq(read32(&reader), 8);
        uint64_t high = read32(&reader), low = read32(&reader);
        ck_assert_int_eq((int64_t)(high << 32 | low), ids[i]);
    }
    ck_assert_ptr_eq(reader.p, reader.end);
}
END_TEST

START_TEST(array_of_places_decodes)
{
    const uint64_t tids[] = {0, 1, (uint64_t)UINT32_MAX << 16 | UINT16_MAX, UINT64_C(0x123456789abc)};
    statement_add_tids(&st, arena, tids, 4);
    struct reader reader;
    ck_assert_uint_eq(read_header(&reader, 0, 27), 4);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(read32(&reader), 6);
        uint64_t block = read32(&reader);
        ck_assert_uint_eq(block << 16 | (uint64_t)(unsigned char)reader.p[0] << 8 | (unsigned char)reader.p[1],
                          tids[i]);
        reader.p += 2;
    }
    ck_assert_ptr_eq(reader.p, reader.end);
}
END_TEST

START_TEST(array_of_texts_decodes)
{
    const struct span texts[] = {SPAN_LITERAL("a"), {NULL, 0}, SPAN_LITERAL(""), SPAN_LITERAL("{\"x,'\\")};
    statement_add_texts(&st, arena, texts, 4);
    struct reader reader;
    ck_assert_uint_eq(read_header(&reader, 1, 25), 4);
    for (size_t i = 0; i < 4; i++) {
        uint32_t size = read32(&reader);
        if (!texts[i].data) {
            ck_assert_uint_eq(size, UINT32_MAX);
            continue;
        }
        ck_assert_uint_eq(size, texts[i].size);
        ck_assert_mem_eq(reader.p, texts[i].data, size);
        reader.p += size;
    }
    ck_assert_ptr_eq(reader.p, reader.end);
}
END_TEST

START_TEST(empty_arrays_have_no_dimension)
{
    struct reader reader;
    statement_add_ids(&st, arena, NULL, 0);
    ck_assert_uint_eq(read_header(&reader, 0, 20), 0);
    ck_assert_ptr_eq(reader.p, reader.end);
    st = statement_of("select");
    statement_add_texts(&st, arena, NULL, 0);
    ck_assert_uint_eq(read_header(&reader, 0, 25), 0);
    ck_assert_ptr_eq(reader.p, reader.end);
}
END_TEST

START_TEST(numbers_and_texts_go_as_text)
{
    statement_add_int(&st, arena, INT64_MIN);
    statement_add_text(&st, NULL);
    statement_add_text(&st, "o'clock");
    ck_assert_int_eq(st.count, 3);
    ck_assert_str_eq(st.values[0], "-9223372036854775808");
    ck_assert_ptr_null(st.values[1]);
    ck_assert_str_eq(st.values[2], "o'clock");
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(st.formats[i], 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("statement");
    TCase *tcase = tcase_create("statement");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, names_are_replaced_outside_quotes_and_comments);
    tcase_add_test(tcase, unknown_name_is_an_error_that_names_it);
    tcase_add_test(tcase, variables_come_before_those_that_they_are_added_to);
    tcase_add_test(tcase, long_texts_are_rendered_whole);
    tcase_add_test(tcase, array_of_ids_decodes);
    tcase_add_test(tcase, array_of_places_decodes);
    tcase_add_test(tcase, array_of_texts_decodes);
    tcase_add_test(tcase, empty_arrays_have_no_dimension);
    tcase_add_test(tcase, numbers_and_texts_go_as_text);
    return run_suite(suite);
}
