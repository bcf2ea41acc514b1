#include "relay/base/log.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIME_SIZE (sizeof "2026-11-21T10:00:00.123Z" - 1)

static int ends[2];
static struct log to_pipe;

static void setup(void)
{
    ck_assert_int_eq(pipe2(ends, O_NONBLOCK), 0);
    to_pipe = (struct log){.level = LOG_INFO, .format = LOG_LOGFMT, .fd = ends[1]};
    unsetenv("JOURNAL_STREAM");
}

static void teardown(void)
{
    close(ends[0]);
    close(ends[1]);
}

/* The next line, which is one write(2). Empty when there is none. */
static const char *line(void)
{
    static char text[8192];
    ssize_t n = read(ends[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static const char *after_time(void)
{
    const char *text = line();
    ck_assert_uint_gt(strlen(text), TIME_SIZE);
    return text + TIME_SIZE;
}

static json_t *json_line(void)
{
    json_error_t error;
    json_t *json = json_loads(line(), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    ck_assert_msg(json != NULL, "%s", error.text);
    return json;
}

START_TEST(logfmt_line_has_time_level_fact_and_fields)
{
    LOG(&to_pipe, LOG_WARN, "delivery.retry", log_int("event", 812), log_text("cause", "broker down"),
        log_real("seconds", 0.5));
    const char *text = line();
    ck_assert_int_eq(text[4], '-');
    ck_assert_int_eq(text[10], 'T');
    ck_assert_int_eq(text[TIME_SIZE - 1], 'Z');
    ck_assert_str_eq(text + TIME_SIZE, " level=warn msg=delivery.retry event=812 cause=\"broker down\" seconds=0.5\n");
}
END_TEST

#define BYTES(text) (text), sizeof(text) - 1

static const struct {
    const char *value;
    size_t size;
    const char *logfmt;
} texts[] = {
    {BYTES("plain-1.2:3/4"), "plain-1.2:3/4"},
    {BYTES("Under_Score"), "Under_Score"},
    {BYTES("~"), "\"~\""},
    {BYTES(""), "\"\""},
    {BYTES("a b"), "\"a b\""},
    {BYTES("a=b"), "\"a=b\""},
    {BYTES("say \"hi\" \\"), "\"say \\\"hi\\\" \\\\\""},
    {BYTES("one\ntwo\r\t"), "\"one\\ntwo\\r\\t\""},
    {BYTES("nul\0 esc\x1b"), "\"nul\\u0000 esc\\u001b\""},
    {BYTES("del\x7f"), "\"del\\u007f\""},
    {BYTES("caf\xc3\xa9"), "\"caf\xc3\xa9\""},
    {BYTES("bad\xff\xc3"), "\"bad\xEF\xBF\xBD\xEF\xBF\xBD\""},
};

START_TEST(text_is_escaped_so_that_a_line_stays_a_line)
{
    char expected[200];
    LOG(&to_pipe, LOG_INFO, "x", log_span("v", (struct span){texts[_i].value, texts[_i].size}));
    snprintf(expected, sizeof expected, " level=info msg=x v=%s\n", texts[_i].logfmt);
    ck_assert_str_eq(after_time(), expected);
}
END_TEST

START_TEST(json_line_gives_back_the_text)
{
    to_pipe.format = LOG_JSON;
    LOG(&to_pipe, LOG_ERROR, "x", log_span("v", (struct span){texts[_i].value, texts[_i].size}), log_int("n", -3));
    json_t *json = json_line();
    ck_assert_str_eq(json_string_value(json_object_get(json, "level")), "error");
    ck_assert_str_eq(json_string_value(json_object_get(json, "msg")), "x");
    ck_assert_int_eq(json_integer_value(json_object_get(json, "n")), -3);
    ck_assert_uint_eq(json_object_size(json), 5);
    const char *value = json_string_value(json_object_get(json, "v"));
    /* The last row is not UTF-8 and cannot come back. A NUL reads as the end here, which is enough. */
    if ((size_t)_i + 1 < sizeof texts / sizeof texts[0])
        ck_assert_str_eq(value, texts[_i].value);
    json_decref(json);
}
END_TEST

START_TEST(json_has_null_for_what_is_no_number)
{
    to_pipe.format = LOG_JSON;
    LOG(&to_pipe, LOG_INFO, "x", log_real("v", NAN), log_real("w", INFINITY));
    json_t *json = json_line();
    ck_assert(json_is_null(json_object_get(json, "v")));
    ck_assert(json_is_null(json_object_get(json, "w")));
    json_decref(json);
}
END_TEST

START_TEST(levels_above_the_chosen_one_are_dropped)
{
    LOG(&to_pipe, LOG_DEBUG, "x", log_int("n", 1));
    ck_assert_str_eq(line(), "");
}
END_TEST

START_TEST(long_json_line_is_cut_and_stays_json)
{
    /* Every length near the limit, so that the cut falls before, in and after each part. */
    char text[5000];
    to_pipe.format = LOG_JSON;
    for (size_t size = 3900; size < sizeof text; size++) {
        memset(text, 'a', size);
        text[size - 1] = '"';
        LOG(&to_pipe, LOG_INFO, "x", log_span("v", (struct span){text, size}), log_int("last", 1));
        json_error_t error;
        const char *got = line();
        ck_assert_uint_le(strlen(got), 4096);
        json_t *json = json_loads(got, 0, &error);
        ck_assert_msg(json != NULL, "size %zu: %s", size, error.text);
        json_decref(json);
    }
}
END_TEST

START_TEST(long_logfmt_line_is_cut_and_keeps_its_end)
{
    char text[5000];
    memset(text, 'a', sizeof text);
    LOG(&to_pipe, LOG_INFO, "x", log_span("v", (struct span){text, sizeof text}), log_int("last", 1));
    const char *got = line();
    size_t size = strlen(got);
    ck_assert_uint_le(size, 4096);
    ck_assert_uint_gt(size, 4000);
    ck_assert_str_eq(got + size - 3, "a\"\n");
}
END_TEST

START_TEST(full_pipe_loses_lines_and_does_not_block)
{
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, 0), 0); /* blocking, as stderr is */
    alarm(20);
    for (int i = 0; i < 5000; i++)
        LOG(&to_pipe, LOG_INFO, "x", log_text("v", "some text that takes room in the pipe"));
    alarm(0);
}
END_TEST

START_TEST(closed_reader_is_survived)
{
    signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    LOG(&to_pipe, LOG_INFO, "x", log_int("n", 1));
    ends[0] = -1;
}
END_TEST

START_TEST(priority_prefix_only_where_the_journal_reads)
{
    struct stat st;
    char stream[64];
    ck_assert_int_eq(fstat(ends[1], &st), 0);
    snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    LOG(&to_pipe, LOG_WARN, "x", log_int("n", 1));
    ck_assert_int_eq(strncmp(line(), "<4>2", 4), 0);
    setenv("JOURNAL_STREAM", "1:2", 1);
    LOG(&to_pipe, LOG_WARN, "x", log_int("n", 1));
    ck_assert_int_eq(*line(), '2');
    to_pipe.fd = -1; /* no file at all */
    LOG(&to_pipe, LOG_WARN, "x", log_int("n", 1));
    ck_assert_str_eq(line(), "");
}
END_TEST

START_TEST(names_of_levels_and_formats_are_parsed)
{
    enum log_level level = LOG_INFO;
    enum log_format format = LOG_LOGFMT;
    ck_assert(log_level_parse("debug", &level) && level == LOG_DEBUG);
    ck_assert(log_level_parse("error", &level) && level == LOG_ERROR);
    ck_assert(!log_level_parse("loud", &level) && level == LOG_ERROR);
    ck_assert(log_format_parse("json", &format) && format == LOG_JSON);
    ck_assert(log_format_parse("logfmt", &format) && format == LOG_LOGFMT);
    ck_assert(!log_format_parse("xml", &format) && format == LOG_LOGFMT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tcase = tcase_create("log");
    int count = sizeof texts / sizeof texts[0];
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 0);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, logfmt_line_has_time_level_fact_and_fields);
    tcase_add_loop_test(tcase, text_is_escaped_so_that_a_line_stays_a_line, 0, count);
    tcase_add_loop_test(tcase, json_line_gives_back_the_text, 0, count);
    tcase_add_test(tcase, json_has_null_for_what_is_no_number);
    tcase_add_test(tcase, levels_above_the_chosen_one_are_dropped);
    tcase_add_test(tcase, long_json_line_is_cut_and_stays_json);
    tcase_add_test(tcase, long_logfmt_line_is_cut_and_keeps_its_end);
    tcase_add_test(tcase, full_pipe_loses_lines_and_does_not_block);
    tcase_add_test(tcase, closed_reader_is_survived);
    tcase_add_test(tcase, priority_prefix_only_where_the_journal_reads);
    tcase_add_test(tcase, names_of_levels_and_formats_are_parsed);
    return run_suite(suite);
}
