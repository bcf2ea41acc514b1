#include "relay/config/yaml.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <libfyaml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool without_diagnosis; /* as if libfyaml had no memory */

struct fy_diag *__real_fy_diag_create(const struct fy_diag_cfg *config);
struct fy_diag *__wrap_fy_diag_create(const struct fy_diag_cfg *config);

struct fy_diag *__wrap_fy_diag_create(const struct fy_diag_cfg *config)
{
    return without_diagnosis ? NULL : __real_fy_diag_create(config);
}

static bool without_values; /* as if libfyaml had no node for a value that is left out */

struct fy_node *__real_fy_node_pair_value(struct fy_node_pair *pair);
struct fy_node *__wrap_fy_node_pair_value(struct fy_node_pair *pair);

struct fy_node *__wrap_fy_node_pair_value(struct fy_node_pair *pair)
{
    return without_values ? NULL : __real_fy_node_pair_value(pair);
}

static struct yaml *yaml;

static void teardown(void)
{
    yaml_free(yaml);
    yaml = NULL;
}

static const struct yaml_node *parse(const char *text)
{
    struct error err;
    yaml_free(yaml);
    yaml = yaml_parse("f", text, strlen(text), &err);
    ck_assert_msg(yaml != NULL, "%s", err.text);
    return yaml_root(yaml);
}

static const struct yaml_node *value(const struct yaml_node *map, const char *name)
{
    const struct yaml_pair *pair = yaml_find(map, name);
    ck_assert_msg(pair != NULL, "no %s", name);
    return pair->value;
}

static const char *refuse(const char *text, size_t size)
{
    static struct error err;
    ck_assert_ptr_null(yaml_parse("f", text, size, &err));
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    return err.text;
}

START_TEST(scalars_stay_the_text_that_was_written)
{
    static const char *const texts[] = {"no", "1.10", "0x10", "1e3", "true", "12:30", "2026-11-21", "-1", "010"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char text[80];
        snprintf(text, sizeof text, "x: %s", texts[i]);
        ck_assert_str_eq(value(parse(text), "x")->text, texts[i]);
    }
}
END_TEST

START_TEST(quotes_and_blocks_are_undone)
{
    const struct yaml_node *root = parse("a: \"x\\ty\\u00e9\"\nb: 'it''s'\nc: |\n  one\n  two\nd: >-\n  one\n  two\n");
    ck_assert_str_eq(value(root, "a")->text, "x\ty\xc3\xa9");
    ck_assert_str_eq(value(root, "b")->text, "it's");
    ck_assert_str_eq(value(root, "c")->text, "one\ntwo\n");
    ck_assert_str_eq(value(root, "d")->text, "one two");
}
END_TEST

START_TEST(nothing_and_null_are_not_text_unless_quoted)
{
    const struct yaml_node *root = parse("a:\nb: ~\nc: null\nd: \"\"\ne: 'null'\nf: {g, h: }\n");
    ck_assert_int_eq(value(root, "a")->kind, YAML_NULL);
    ck_assert_int_eq(value(root, "b")->kind, YAML_NULL);
    ck_assert_int_eq(value(root, "c")->kind, YAML_NULL);
    ck_assert_int_eq(value(root, "d")->kind, YAML_SCALAR);
    ck_assert_str_eq(value(root, "e")->text, "null");
    ck_assert_int_eq(value(value(root, "f"), "g")->kind, YAML_NULL);
    ck_assert_int_eq(value(value(root, "f"), "h")->kind, YAML_NULL);
}
END_TEST

START_TEST(value_that_the_library_leaves_out_is_nothing)
{
    without_values = true;
    const struct yaml_node *root = parse("\na:\nb:\n");
    without_values = false;
    ck_assert_uint_eq(root->count, 2);
    ck_assert_int_eq(value(root, "a")->kind, YAML_NULL);
    ck_assert_int_eq(value(root, "b")->line, 3);
}
END_TEST

START_TEST(names_may_hold_dots_and_keep_their_order)
{
    const struct yaml_node *map = value(parse("p: { bootstrap.servers: \"a:1\", acks: all, x: [1, 2] }\n"), "p");
    ck_assert_int_eq(map->kind, YAML_MAP);
    ck_assert_uint_eq(map->count, 3);
    ck_assert_str_eq(map->pairs[0].name, "bootstrap.servers");
    ck_assert_str_eq(map->pairs[1].name, "acks");
    ck_assert_int_eq(map->pairs[2].value->kind, YAML_LIST);
}
END_TEST

START_TEST(items_of_a_list_are_named_by_their_number)
{
    const struct yaml_node *list = value(parse("command:\n  - /bin/sh\n  - [a, { b: c }]\n  - \n"), "command");
    ck_assert_int_eq(list->kind, YAML_LIST);
    ck_assert_uint_eq(list->count, 3);
    ck_assert_str_eq(value(list, "0")->text, "/bin/sh");
    ck_assert_int_eq(value(list, "0")->line, 2);
    ck_assert_int_eq(value(list, "0")->column, 5);
    ck_assert_str_eq(value(value(value(list, "1"), "1"), "b")->text, "c");
    ck_assert_int_eq(value(list, "2")->kind, YAML_NULL);
}
END_TEST

START_TEST(places_count_lines_and_columns_from_one)
{
    const struct yaml_node *root = parse("# c\na:\n  b: 1\n  c: { d: 2 }\n  e:\n");
    const struct yaml_node *a = value(root, "a");
    ck_assert_int_eq(yaml_find(root, "a")->line, 2);
    ck_assert_int_eq(yaml_find(root, "a")->column, 1);
    ck_assert_int_eq(value(a, "b")->line, 3);
    ck_assert_int_eq(value(a, "b")->column, 6);
    ck_assert_int_eq(value(value(a, "c"), "d")->line, 4);
    ck_assert_int_eq(value(value(a, "c"), "d")->column, 11);
    ck_assert_int_eq(value(a, "c")->column, 3); /* a mapping is where its name is */
    ck_assert_int_eq(value(a, "e")->line, 5);
}
END_TEST

START_TEST(empty_document_is_a_map_without_pairs)
{
    ck_assert_int_eq(parse("")->kind, YAML_MAP);
    ck_assert_uint_eq(parse("# only a comment\n")->count, 0);
    ck_assert_uint_eq(parse("---\n...\n")->count, 0);
}
END_TEST

START_TEST(alias_and_merge_stand_for_their_anchor)
{
    const struct yaml_node *root = parse("a: &a { x: 1, y: 2 }\nb: *a\nc: { y: 3, <<: *a, z: &t 4 }\nd: *t\n");
    ck_assert_str_eq(value(value(root, "b"), "y")->text, "2");
    ck_assert_uint_eq(value(root, "c")->count, 3);
    ck_assert_str_eq(value(value(root, "c"), "x")->text, "1");
    ck_assert_str_eq(value(value(root, "c"), "y")->text, "3");
    ck_assert_str_eq(value(root, "d")->text, "4");
}
END_TEST

START_TEST(aliases_cannot_grow_without_bound)
{
    char text[4000] = "a0: &a0 { x: 1 }\n";
    for (int i = 1; i < 12; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "a%d: &a%d { a: *a%d, b: *a%d, c: *a%d, d: *a%d }\n", i, i, i - 1,
                 i - 1, i - 1, i - 1);
    }
    ck_assert_ptr_nonnull(strstr(refuse(text, strlen(text)), "too deep or too large"));
}
END_TEST

START_TEST(deep_nesting_is_refused)
{
    static char text[200000];
    memset(text, '{', sizeof text - 1);
    refuse(text, sizeof text - 1);
    strcpy(text, "");
    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), 100, "%*sa:\n", i, "");
    ck_assert_ptr_nonnull(strstr(refuse(text, strlen(text)), "too deep or too large"));
    text[0] = '\0';
    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), 100, "- ");
    snprintf(text + strlen(text), 100, "a\n");
    ck_assert_ptr_nonnull(strstr(refuse(text, strlen(text)), "too deep or too large"));
}
END_TEST

START_TEST(bytes_that_are_not_text_are_refused_with_their_place)
{
    ck_assert_str_eq(refuse("a: 1\nb: \xc3\xa9\xff\n", 11), "f:2:5: this byte is not UTF-8; save the file as UTF-8");
    ck_assert_str_eq(refuse("a: \0\n", 5), "f:1:4: this is a NUL byte; is it a text file?");
}
END_TEST

START_TEST(names_are_plain_texts)
{
    ck_assert_ptr_nonnull(strstr(refuse("{}: 1\n", 6), "a name in this mapping is not a plain text"));
    ck_assert_ptr_nonnull(strstr(refuse("? [a, b]\n: 1\n", 13), "f:1:4: a name in this mapping"));
    ck_assert_ptr_nonnull(strstr(refuse("\"a\\0b\": 1\n", 10), "this text holds a NUL character"));
}
END_TEST

START_TEST(library_that_does_not_start_is_an_error)
{
    without_diagnosis = true;
    struct error err;
    const struct yaml *none = yaml_parse("f", "a: 1\n", 5, &err);
    without_diagnosis = false;
    ck_assert_ptr_null(none);
    ck_assert_int_eq(err.kind, ERROR_RESOURCE);
    ck_assert_str_eq(err.text, "f: libfyaml could not start");
}
END_TEST

/* Every beginning of a good file is parsed or refused, never worse. */
START_TEST(cut_file_never_crashes)
{
    static const char text[] =
        "a: &x {b: [1, 'two', \"thr\\u00e9\"], c: |\n   d}\ne: *x\n? f\n: >-\n  g\n<<: *x\n---\n...\n";
    for (size_t size = 0; size < sizeof text; size++) {
        struct error err;
        char *copy = malloc(size + 1);
        memcpy(copy, text, size);
        copy[size] = '\0';
        yaml_free(yaml_parse("f", copy, size, &err));
        free(copy);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("yaml");
    TCase *tcase = tcase_create("yaml");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, scalars_stay_the_text_that_was_written);
    tcase_add_test(tcase, quotes_and_blocks_are_undone);
    tcase_add_test(tcase, nothing_and_null_are_not_text_unless_quoted);
    tcase_add_test(tcase, value_that_the_library_leaves_out_is_nothing);
    tcase_add_test(tcase, names_may_hold_dots_and_keep_their_order);
    tcase_add_test(tcase, items_of_a_list_are_named_by_their_number);
    tcase_add_test(tcase, places_count_lines_and_columns_from_one);
    tcase_add_test(tcase, empty_document_is_a_map_without_pairs);
    tcase_add_test(tcase, alias_and_merge_stand_for_their_anchor);
    tcase_add_test(tcase, aliases_cannot_grow_without_bound);
    tcase_add_test(tcase, deep_nesting_is_refused);
    tcase_add_test(tcase, bytes_that_are_not_text_are_refused_with_their_place);
    tcase_add_test(tcase, names_are_plain_texts);
    tcase_add_test(tcase, library_that_does_not_start_is_an_error);
    tcase_add_test(tcase, cut_file_never_crashes);
    return run_suite(suite);
}
