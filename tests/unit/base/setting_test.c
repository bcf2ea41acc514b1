#include "relay/base/setting.h"

#include "relay/base/suggest.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct values {
    char *text, *secret, *url, *word;
    bool flag;
    int choice;
    int64_t count, any_count, size, duration, any_duration;
    struct setting_map map;
    struct setting_list list;
};

static const char *const colours[] = {"red", "green", "blue", NULL};
static const char *const schemes[] = {"http", "https", NULL};

#define AT(member) offsetof(struct values, member)

static const struct setting table[] = {
    {.name = "text", .kind = SETTING_TEXT, .offset = AT(text), .fallback = "fall"},
    {.name = "secret", .kind = SETTING_SECRET, .offset = AT(secret), .fallback = ""},
    {.name = "url", .kind = SETTING_URL, .offset = AT(url), .choices = schemes},
    {.name = "word", .kind = SETTING_TEXT, .offset = AT(word), .choices = colours},
    {.name = "flag", .kind = SETTING_BOOL, .offset = AT(flag), .fallback = "on"},
    {.name = "choice", .kind = SETTING_CHOICE, .offset = AT(choice), .fallback = "green", .choices = colours},
    {.name = "count", .kind = SETTING_COUNT, .offset = AT(count), .fallback = "3", .min = 1, .max = 64},
    {.name = "any_count", .kind = SETTING_COUNT, .offset = AT(any_count)},
    {.name = "size", .kind = SETTING_SIZE, .offset = AT(size), .fallback = "1MB", .max = INT64_C(1) << 40},
    {.name = "duration",
     .kind = SETTING_DURATION,
     .offset = AT(duration),
     .fallback = "250us",
     .min = 100,
     .max = INT64_C(3600000000)},
    {.name = "any_duration", .kind = SETTING_DURATION, .offset = AT(any_duration)},
    {.name = "map", .kind = SETTING_MAP, .offset = AT(map)},
    {.name = "list", .kind = SETTING_LIST, .offset = AT(list)},
    {.name = NULL},
};

static struct values values;

static void setup(void)
{
    memset(&values, 0, sizeof values);
    setting_defaults(table, &values);
}

static void teardown(void)
{
    setting_free(table, &values);
}

static void take(const char *name, const char *text)
{
    struct error err;
    ck_assert_msg(setting_parse(setting_find(table, name), text, &values, &err), "%s: %s", name, err.text);
}

static const char *refuse(const char *name, const char *text)
{
    static struct error err;
    ck_assert_msg(!setting_parse(setting_find(table, name), text, &values, &err), "%s took %s", name, text);
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    return err.text;
}

START_TEST(defaults_are_parsed_like_values)
{
    ck_assert_str_eq(values.text, "fall");
    ck_assert_str_eq(values.secret, "");
    ck_assert_ptr_null(values.url);
    ck_assert(values.flag);
    ck_assert_int_eq(values.choice, 1);
    ck_assert_int_eq(values.count, 3);
    ck_assert_int_eq(values.any_count, 0);
    ck_assert_int_eq(values.size, 1 << 20);
    ck_assert_int_eq(values.duration, 250);
}
END_TEST

static const struct {
    const char *name, *text;
    size_t offset;
    int64_t value;
} numbers[] = {
    {"duration", "250us", AT(duration), 250},
    {"duration", "10ms", AT(duration), 10000},
    {"duration", "1s", AT(duration), 1000000},
    {"duration", "5m", AT(duration), 300000000},
    {"duration", "1h", AT(duration), 3600000000},
    {"duration", "100us", AT(duration), 100},
    {"any_duration", "0", AT(any_duration), 0},
    {"any_duration", "0s", AT(any_duration), 0},
    {"any_duration", "2h", AT(any_duration), 7200000000},
    {"any_duration", "1d", AT(any_duration), 86400000000},
    {"any_duration", "106751991d", AT(any_duration), INT64_C(106751991) * 86400000000},
    {"size", "0", AT(size), 0},
    {"size", "17", AT(size), 17},
    {"size", "17B", AT(size), 17},
    {"size", "64kB", AT(size), 65536},
    {"size", "64KB", AT(size), 65536},
    {"size", "1MB", AT(size), 1 << 20},
    {"size", "1GB", AT(size), 1 << 30},
    {"count", "1", AT(count), 1},
    {"count", "64", AT(count), 64},
    {"count", "007", AT(count), 7},
    {"any_count", "9223372036854775806", AT(any_count), INT64_MAX - 1},
};

START_TEST(numbers_carry_their_units)
{
    take(numbers[_i].name, numbers[_i].text);
    int64_t value;
    memcpy(&value, (char *)&values + numbers[_i].offset, sizeof value);
    ck_assert_int_eq(value, numbers[_i].value);
}
END_TEST

static const struct {
    const char *name, *text, *message;
} refused[] = {
    {"duration", "5x", "\"5x\" is not a duration; write e.g. 250ms, 10s, 5m"},
    {"duration", "", "\"\" is not a duration; write e.g. 250ms, 10s, 5m"},
    {"duration", " 5s", "\" 5s\" is not a duration; write e.g. 250ms, 10s, 5m"},
    {"duration", "5s ", "\"5s \" is not a duration; write e.g. 250ms, 10s, 5m"},
    {"duration", "5", "\"5\" has no unit; write e.g. 250ms, 10s, 5m"},
    {"duration", "99us", "\"99us\" is out of range; write 100us to 1h"},
    {"duration", "61m", "\"61m\" is out of range; write 100us to 1h"},
    {"duration", "0", "\"0\" is out of range; write 100us to 1h"},
    {"any_duration", "-1s", "\"-1s\" is out of range; write 0 or more"},
    {"any_duration", "106751992d", "\"106751992d\" is out of range; write 0 or more"},
    {"any_duration", "99999999999999999999s", "\"99999999999999999999s\" is out of range; write 0 or more"},
    {"count", "0", "\"0\" is out of range; write 1 to 64"},
    {"count", "65", "\"65\" is out of range; write 1 to 64"},
    {"count", "-", "\"-\" is not a whole number; write e.g. 12"},
    {"count", "1e3", "\"1e3\" is not a whole number; write e.g. 12"},
    {"count", "0x10", "\"0x10\" is not a whole number; write e.g. 12"},
    {"any_count", "9223372036854775809", "\"9223372036854775809\" is out of range; write 0 or more"},
    {"count", "18446744073709551617", "\"18446744073709551617\" is out of range; write 1 to 64"},
    {"size", "4 MB", "\"4 MB\" is not a size; write e.g. 64kB, 1MB, 1GB"},
    {"size", "1025GB", "\"1025GB\" is out of range; write 0 to 1024GB"},
    {"flag", "1", "\"1\" is not true or false; write yes or no"},
    {"choice", "gren", "\"gren\" is not red, green or blue; did you mean \"green\"?"},
    {"choice", "purple", "\"purple\" is unknown; write red, green or blue"},
    {"choice", "", "\"\" is unknown; write red, green or blue"},
    {"word", "purple", "\"purple\" is unknown; write red, green or blue"},
    {"text", "", "the value is empty; write one or leave the key out"},
    {"url", "db:80", "\"db:80\" is not a URL; write one that starts with http:// or https://"},
    {"url", "://db", "\"://db\" is not a URL; write one that starts with http:// or https://"},
    {"url", "ftp://me:pw@db/x", "\"ftp://db/x\" has another scheme than http:// or https://"},
    {"url", "file://db/x", "\"file://db/x\" has another scheme than http:// or https://"},
    {"url",
     "http://a\x7f"
     "b",
     "\"http://a b\" has a space or control character in it; write it as %7F"},
    {"url", "http://", "\"http://\" names no host; write e.g. http://127.0.0.1"},
    {"url", "http://me:pw@db/a b", "\"http://db/a b\" has a space or control character in it; write it as %20"},
    {"map", "x", "a single value cannot stand here; write { name: value, ... }"},
    {"list", "x", "a single value cannot stand here; write a list: [one, another]"},
};

START_TEST(wrong_value_is_named_with_what_is_allowed)
{
    ck_assert_str_eq(refuse(refused[_i].name, refused[_i].text), refused[_i].message);
}
END_TEST

START_TEST(refused_value_leaves_the_old_one)
{
    take("url", "http://db");
    take("count", "5");
    refuse("url", "nonsense");
    refuse("count", "1000");
    refuse("text", "");
    ck_assert_str_eq(values.url, "http://db");
    ck_assert_int_eq(values.count, 5);
    ck_assert_str_eq(values.text, "fall");
}
END_TEST

START_TEST(bools_have_three_spellings)
{
    static const char *const on[] = {"true", "yes", "on", "True", "YES"};
    static const char *const off[] = {"false", "no", "off", "False", "NO"};
    for (size_t i = 0; i < 5; i++) {
        take("flag", on[i]);
        ck_assert(values.flag);
        take("flag", off[i]);
        ck_assert(!values.flag);
    }
}
END_TEST

START_TEST(long_value_is_cut_between_characters)
{
    char text[202] = "x";
    for (size_t i = 1; i + 2 < sizeof text; i += 2) {
        text[i] = '\xc3';
        text[i + 1] = '\xa9';
    }
    const char *message = refuse("count", text);
    ck_assert_msg(strstr(message, "\xc3\xa9...\" is not") != NULL, "%s", message);
    ck_assert_uint_lt(strlen(message), 120);
}
END_TEST

START_TEST(map_keeps_pairs_in_order)
{
    setting_map_put(setting_find(table, "map"), "bootstrap.servers", "127.0.0.1:9092", &values);
    setting_map_put(setting_find(table, "map"), "acks", "", &values);
    ck_assert_uint_eq(values.map.count, 2);
    ck_assert_str_eq(values.map.pairs[0].name, "bootstrap.servers");
    ck_assert_str_eq(values.map.pairs[0].value, "127.0.0.1:9092");
    ck_assert_str_eq(values.map.pairs[1].value, "");
}
END_TEST

START_TEST(list_keeps_texts_in_order_and_ends_with_null)
{
    struct error err;
    ck_assert(setting_list_add(setting_find(table, "list"), "/bin/sh", &values, &err));
    ck_assert(setting_list_add(setting_find(table, "list"), "", &values, &err));
    ck_assert_uint_eq(values.list.count, 2);
    ck_assert_str_eq(values.list.texts[0], "/bin/sh");
    ck_assert_str_eq(values.list.texts[1], "");
    ck_assert_ptr_null(values.list.texts[2]);
}
END_TEST

static bool is_long(const char *text, struct error *err)
{
    return strlen(text) > 3 || error_set(err, ERROR_CONFIG, "is short");
}

START_TEST(secrets_are_each_checked_and_no_more_than_there_may_be)
{
    const struct setting secrets = {"list", SETTING_SECRETS, AT(list), .max = 2, .check = is_long};
    struct error err;
    ck_assert(setting_list_add(&secrets, "first", &values, &err));
    ck_assert(!setting_list_add(&secrets, "abc", &values, &err));
    ck_assert_str_eq(err.text, "is short");
    ck_assert_uint_eq(values.list.count, 1);
    ck_assert(setting_list_add(&secrets, "second", &values, &err));
    ck_assert(!setting_list_add(&secrets, "third", &values, &err));
    ck_assert_str_eq(err.text, "one too many: 2 are the most; leave out the last");
    ck_assert_uint_eq(values.list.count, 2);
    ck_assert_str_eq(values.list.texts[1], "second");
    ck_assert(setting_is_secret(&secrets) && !setting_is_secret(setting_find(table, "list")));
}
END_TEST

START_TEST(freed_values_are_absent)
{
    struct error err;
    ck_assert(setting_list_add(setting_find(table, "list"), "a", &values, &err));
    setting_map_put(setting_find(table, "map"), "a", "b", &values);
    setting_free(table, &values);
    ck_assert_ptr_null(values.text);
    ck_assert_ptr_null(values.secret);
    ck_assert_ptr_null(values.map.pairs);
    ck_assert_uint_eq(values.map.count, 0);
    ck_assert_ptr_null(values.list.texts);
    ck_assert_uint_eq(values.list.count, 0);
}
END_TEST

static const struct {
    const char *url, *shown;
} urls[] = {
    {"http://db/x", "http://db/x"},
    {"http://me:pw@db:80/x?y#z", "http://db:80/x"},
    {"http://db?token=pw", "http://db"},
    {"redis://:pw@db", "redis://db"},
    {"http://me:p@w@db/x", "http://db/x"},
    {"redis://:p/w@db/0", "redis://db/0"},
    {"redis://:p?w@db/0", "redis://db/0"},
    {"http://db:80/users/@me", "http://db:80/users/@me"},
    {"http://db/users/@me", "http://db/users/@me"},
    {"http://[::1]/@me", "http://[::1]/@me"},
    {"me:pw@db", "db"},
    {"http//me:pw@db", "db"},
    {"http:/me:pw@db/x", "db/x"},
    {"", ""},
};

START_TEST(url_is_shown_without_userinfo_and_query)
{
    char shown[100];
    setting_url_show(urls[_i].url, shown, sizeof shown);
    ck_assert_str_eq(shown, urls[_i].shown);
}
END_TEST

static const struct {
    const char *name, *text;
} descriptions[] = {
    {"text", "text"},
    {"secret", "text, secret"},
    {"url", "a URL: http:// or https://"},
    {"word", "red, green or blue"},
    {"flag", "yes or no"},
    {"count", "a whole number, 1 to 64"},
    {"any_count", "a whole number, 0 or more"},
    {"duration", "a duration, 100us to 1h"},
    {"map", "names with values"},
    {"list", "a list of texts"},
};

START_TEST(what_may_be_written_is_described)
{
    char text[200];
    setting_describe(setting_find(table, descriptions[_i].name), text, sizeof text);
    ck_assert_str_eq(text, descriptions[_i].text);
}
END_TEST

static const struct {
    const char *word, *name;
} slips[] = {
    {"databse", "database"},   /* missing */
    {"databasse", "database"}, /* too many */
    {"databaze", "database"},  /* wrong */
    {"adtabase", "database"},  /* swapped */
    {"DATABASE", "database"},  {"queue", "queues"}, {"snik", "sink"}, {"no", NULL}, {"xyz", NULL}, {"", NULL},
    {"sinking", NULL},
};

START_TEST(nearest_name_is_suggested)
{
    static const char *const names[] = {"database", "sinks", "queues", "sink", "on", NULL};
    const char *name = suggest(slips[_i].word, names);
    if (slips[_i].name)
        ck_assert_str_eq(name, slips[_i].name);
    else
        ck_assert_msg(name == NULL, "%s for %s", name, slips[_i].word);
}
END_TEST

START_TEST(endless_word_gets_no_suggestion)
{
    static const char *const names[] = {"database", NULL};
    char word[1000];
    memset(word, 'd', sizeof word);
    word[sizeof word - 1] = '\0';
    ck_assert_ptr_null(suggest(word, names));
}
END_TEST

START_TEST(endless_name_is_no_suggestion)
{
    char name[100];
    memset(name, 'd', sizeof name);
    name[sizeof name - 1] = '\0';
    const char *const names[] = {name, "database", NULL};
    ck_assert_str_eq(suggest("databse", names), "database");
}
END_TEST

START_TEST(suggestion_is_the_end_of_a_sentence)
{
    static const char *const names[] = {"database", NULL};
    char text[80];
    ck_assert_str_eq(suggest_text("databse", names, text, sizeof text), "; did you mean \"database\"?");
    ck_assert_str_eq(suggest_text("queue", names, text, sizeof text), "");
}
END_TEST

START_TEST(list_of_choices_that_is_too_long_is_cut)
{
    static const char *const many[] = {"alpha", "beta", "gamma", "delta", NULL};
    const struct setting setting = {.name = "s", .kind = SETTING_CHOICE, .choices = many};
    char text[12];
    setting_describe(&setting, text, sizeof text);
    ck_assert_str_eq(text, "alpha, beta");
}
END_TEST

START_TEST(default_that_is_refused_ends_the_process)
{
    static const struct setting wrong[] = {{.name = "w", .kind = SETTING_BOOL, .fallback = "maybe"}, {.name = NULL}};
    setting_defaults(wrong, &values);
}
END_TEST

#define COUNT(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

int main(void)
{
    Suite *suite = suite_create("setting");
    TCase *tcase = tcase_create("setting");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, defaults_are_parsed_like_values);
    tcase_add_loop_test(tcase, numbers_carry_their_units, 0, COUNT(numbers));
    tcase_add_loop_test(tcase, wrong_value_is_named_with_what_is_allowed, 0, COUNT(refused));
    tcase_add_test(tcase, refused_value_leaves_the_old_one);
    tcase_add_test(tcase, bools_have_three_spellings);
    tcase_add_test(tcase, long_value_is_cut_between_characters);
    tcase_add_test(tcase, map_keeps_pairs_in_order);
    tcase_add_test(tcase, list_keeps_texts_in_order_and_ends_with_null);
    tcase_add_test(tcase, secrets_are_each_checked_and_no_more_than_there_may_be);
    tcase_add_test(tcase, freed_values_are_absent);
    tcase_add_loop_test(tcase, url_is_shown_without_userinfo_and_query, 0, COUNT(urls));
    tcase_add_loop_test(tcase, what_may_be_written_is_described, 0, COUNT(descriptions));
    tcase_add_loop_test(tcase, nearest_name_is_suggested, 0, COUNT(slips));
    tcase_add_test(tcase, endless_word_gets_no_suggestion);
    tcase_add_test(tcase, endless_name_is_no_suggestion);
    tcase_add_test(tcase, suggestion_is_the_end_of_a_sentence);
    tcase_add_test(tcase, list_of_choices_that_is_too_long_is_cut);
    tcase_add_test_raise_signal(tcase, default_that_is_refused_ends_the_process, SIGABRT);
    return run_suite_forked(suite);
}
