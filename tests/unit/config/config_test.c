#include "relay/config/config.h"

#include "relay/base/clock.h"
#include "relay/base/file.h"
#include "relay/postgres/db.h"
#include "sinks/sink.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#define SINKS "sinks:\n  log: { type: discard }\n"

static char path[64];

static void setup(void)
{
    strcpy(path, "/tmp/config_test.XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void teardown(void)
{
    unlink(path);
}

static void write_file(const char *name, const char *text)
{
    FILE *out = fopen(name, "w");
    ck_assert_ptr_nonnull(out);
    fputs(text, out);
    ck_assert_int_eq(fclose(out), 0);
}

static struct config *load(const char *text)
{
    struct error err;
    write_file(path, text);
    struct config *config = config_load(path, &err);
    ck_assert_msg(config != NULL, "%s", err.text);
    return config;
}

static void expect_error(const char *text, struct error *ret_err)
{
    write_file(path, text);
    ck_assert_ptr_null(config_load(path, ret_err));
}

static const char article[] = "database: \"postgresql:///shop\"\n"
                              "sinks:\n"
                              "  log:  { type: file,  path: \"events.jsonl\" }\n"
                              "  none: { type: discard, max_in_flight: 7 }\n"
                              "queues:\n"
                              "  orders:\n"
                              "    table: public.events\n"
                              "    columns: { id: no, key: order_id, type: status, created_at: created_at }\n"
                              "    ordering: per_key\n"
                              "    sink: log\n"
                              "    destination: \"orders.{type}\"\n"
                              "    after: archive\n"
                              "    retry: { base: 2s, max: 5m, attempts: 3, on_exhausted: park }\n";

START_TEST(every_value_of_a_queue_is_read)
{
    struct config *config = load(article);
    ck_assert_str_eq(config->database, "postgresql:///shop");
    ck_assert_uint_eq(config->sink_count, 2);
    ck_assert_uint_eq(config->queue_count, 1);
    const struct queue_config *queue = &config->queues[0];
    ck_assert_str_eq(queue->name, "orders");
    ck_assert_str_eq(queue->table, "public.events");
    ck_assert_str_eq(queue->columns.id, "no"); /* and not false */
    ck_assert_str_eq(queue->columns.key, "order_id");
    ck_assert_str_eq(queue->columns.type, "status");
    ck_assert_str_eq(queue->columns.created_at, "created_at");
    ck_assert_ptr_null(queue->columns.payload);
    ck_assert_str_eq(queue->sink, "log");
    ck_assert_str_eq(queue->destination, "orders.{type}");
    ck_assert_int_eq(queue->after, AFTER_ARCHIVE);
    ck_assert_int_eq(queue->retry_base_us, 2 * SECOND_US);
    ck_assert_int_eq(queue->retry_max_us, 300 * SECOND_US);
    ck_assert_int_eq(queue->retry_attempts, 3);
    ck_assert_int_eq(queue->on_exhausted, ON_EXHAUSTED_PARK);
    ck_assert_int_eq(config_sink(config, "none")->max_in_flight, 7);
    ck_assert_str_eq(config_sink(config, "log")->type->name, "file");
    ck_assert_ptr_null(config_sink(config, "other"));
    char place[100];
    snprintf(place, sizeof place, "%s:6:3", path);
    ck_assert_str_eq(queue->place, place);
    config_free(config);
}
END_TEST

/* Its help says so in words. */
START_TEST(places_of_a_sink_that_nobody_has_counted_are_those_of_its_type)
{
    struct config *config = load("sinks:\n"
                                 "  k: { type: kafka, properties: { bootstrap.servers: h } }\n"
                                 "  r: { type: redis, url: \"redis://h\" }\n"
                                 "queues:\n  q: { sink: k, table: t, destination: d }\n");
    ck_assert_int_eq(config_sink(config, "k")->max_in_flight, 8192);
    ck_assert_int_eq(config_sink(config, "r")->max_in_flight, 1024);
    config_free(config);
}
END_TEST

START_TEST(what_is_left_out_has_its_default)
{
    struct config *config = load(SINKS "queues:\n  q: { sink: log, table: t }\n");
    ck_assert_str_eq(config->database, "");
    ck_assert_ptr_null(config->listen_database);
    ck_assert_int_eq(config->prepared, PREPARED_AUTO);
    ck_assert_int_eq(config->shutdown_timeout_us, 30 * SECOND_US);
    ck_assert_int_eq(config->statement_timeout_us, 30 * SECOND_US);
    ck_assert_int_eq(config->stats_interval_us, 10 * SECOND_US);
    ck_assert_int_eq(config->sinks[0].max_in_flight, 256);
    const struct queue_config *queue = &config->queues[0];
    ck_assert_str_eq(queue->columns.id, "id");
    ck_assert_ptr_null(queue->columns.key);
    ck_assert_str_eq(queue->ordering, "per_key");
    ck_assert_int_eq(queue->after, AFTER_DELETE);
    ck_assert_int_eq(queue->retry_base_us, SECOND_US);
    ck_assert_int_eq(queue->retry_max_us, 300 * SECOND_US);
    ck_assert_int_eq(queue->retry_attempts, 12);
    ck_assert_int_eq(queue->on_exhausted, ON_EXHAUSTED_DEAD_LETTER);
    ck_assert_int_eq(queue->connections, 2);
    ck_assert_int_eq(queue->keys_per_claim, 512);
    ck_assert_int_eq(queue->max_events_per_key, 1024);
    ck_assert_int_eq(queue->max_batch_bytes, 4 << 20);
    ck_assert_int_eq(queue->max_event_bytes, 0);
    ck_assert_int_eq(queue->latency_us, 5 * MS_US);
    ck_assert_int_eq(queue->poll_max_us, 200 * MS_US);
    ck_assert_int_eq(queue->oldest_share, 55);
    ck_assert_int_eq(queue->lock_class, 0);
    ck_assert_ptr_null(queue->where);
    ck_assert_ptr_null(queue->destination);
    config_free(config);
}
END_TEST

START_TEST(queue_without_table_reads_our_own_with_all_columns)
{
    struct config *config = load(SINKS "queues:\n  q: { sink: log }\n");
    const struct queue_config *queue = &config->queues[0];
    ck_assert_str_eq(queue->table, "outbox.events");
    ck_assert_str_eq(queue->columns.id, "id");
    ck_assert_str_eq(queue->columns.key, "aggregateid");
    ck_assert_str_eq(queue->columns.type, "type");
    ck_assert_str_eq(queue->columns.payload, "payload");
    ck_assert_str_eq(queue->columns.headers, "headers");
    ck_assert_str_eq(queue->columns.event_id, "event_id");
    ck_assert_str_eq(queue->columns.traceparent, "traceparent");
    ck_assert_str_eq(queue->columns.created_at, "created_at");
    config_free(config);
}
END_TEST

static const struct {
    const char *settings;
    int64_t latency_us, poll_max_us;
} bounds[] = {{"latency: 1s", SECOND_US, SECOND_US},
              {"poll: { max: 4ms }", 4 * MS_US, 4 * MS_US},
              {"poll: { max: 1s }", 5 * MS_US, SECOND_US},
              {"latency: 1ms", MS_US, 200 * MS_US}};

START_TEST(of_latency_and_longest_look_the_written_one_bounds_the_other)
{
    char text[200];
    snprintf(text, sizeof text, SINKS "queues:\n  q: { sink: log, %s }\n", bounds[_i].settings);
    struct config *config = load(text);
    ck_assert_int_eq(config->queues[0].latency_us, bounds[_i].latency_us);
    ck_assert_int_eq(config->queues[0].poll_max_us, bounds[_i].poll_max_us);
    config_free(config);
}
END_TEST

START_TEST(variables_are_put_in_after_parsing)
{
    setenv("CONFIG_TEST_A", "x: { y } # \"z\" ${B} $$", 1);
    setenv("CONFIG_TEST_EMPTY", "", 1);
    unsetenv("CONFIG_TEST_UNSET");
    struct config *config = load(SINKS "queues:\n"
                                       "  q:\n"
                                       "    sink: log\n"
                                       "    where: ${CONFIG_TEST_A}/$$1/${CONFIG_TEST_UNSET:-d:-e}/"
                                       "${CONFIG_TEST_EMPTY:-f}/${CONFIG_TEST_UNSET:-}\n");
    ck_assert_str_eq(config->queues[0].where, "x: { y } # \"z\" ${B} $$/$1/d:-e/f/");
    config_free(config);
}
END_TEST

static const struct {
    const char *file, *secret;
} secret_files[] = {
    {"host=db password=a$b", "host=db password=a$b"},         {"host=db password=a\n", "host=db password=a"},
    {"host=db password=a\r\n", "host=db password=a"},         {"host=db password='a \n'\n", "host=db password='a \n'"},
    {"host=db password=' a'\n\n", "host=db password=' a'\n"},
};

START_TEST(secret_comes_from_its_file_without_the_last_line_end)
{
    char secret[80], text[400];
    snprintf(secret, sizeof secret, "%s.secret", path);
    snprintf(text, sizeof text, "database_file: %s\n" SINKS "queues:\n  q: { sink: log }\n", secret);
    write_file(secret, secret_files[_i].file);
    struct config *config = load(text);
    ck_assert_str_eq(config->database, secret_files[_i].secret);
    config_free(config);
    unlink(secret);
}
END_TEST

#define SIGNED "sinks:\n  log: { type: http, url: \"https://h/\", secrets_file: %s }\nqueues:\n  q: { sink: log }\n"
#define FIRST "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
#define SECOND "whsec_GBkaGxwdHh8gISIjJCUmJygpKissLS4v"

static const struct {
    const char *file, *secrets[2], *message;
} files_of_secrets[] = {
    {FIRST, {FIRST}, NULL},
    {FIRST "\n" SECOND "\n", {FIRST, SECOND}, NULL},
    {"\n" SECOND "\r\n\r\n" FIRST "\r\n", {SECOND, FIRST}, NULL},
    {FIRST "\n\nhunter2\n", {NULL}, "line 3: does not begin with whsec_; write whsec_ and the secret in base64"},
    {FIRST " " SECOND "\n", {NULL}, "line 1: byte 39 is not of base64"},
    {"\n\n", {NULL}, "is empty; put the secrets into it, one a line"},
};

/* Of a sink called log, whose type is http. */
static const struct setting_list *secrets_of(const struct config *config)
{
    const struct sink_config *sink = config_sink(config, "log");
    const struct setting *setting = setting_find(sink->type->settings, "secrets");
    return (const struct setting_list *)(const void *)((const char *)sink->settings + setting->offset);
}

START_TEST(several_secrets_come_from_a_file_one_a_line)
{
    char secret[80], text[400], wanted[300];
    snprintf(secret, sizeof secret, "%s.secret", path);
    snprintf(text, sizeof text, SIGNED, secret);
    write_file(secret, files_of_secrets[_i].file);
    if (files_of_secrets[_i].message) {
        struct error err;
        expect_error(text, &err);
        snprintf(wanted, sizeof wanted, ":2:55: sinks.log.secrets_file: file \"%s\": %s", secret,
                 files_of_secrets[_i].message);
        ck_assert_msg(strstr(err.text, wanted) != NULL, "%s", err.text);
        ck_assert(!strstr(err.text, "hunter2") && !strstr(err.text, FIRST));
    } else {
        struct config *config = load(text);
        const struct setting_list *secrets = secrets_of(config);
        ck_assert_uint_eq(secrets->count, files_of_secrets[_i].secrets[1] ? 2 : 1);
        for (size_t i = 0; i < secrets->count; i++)
            ck_assert_str_eq(secrets->texts[i], files_of_secrets[_i].secrets[i]);
        config_free(config);
    }
    unlink(secret);
}
END_TEST

static const char *const with_secret[] = {
    "database: \"host=db password='hunter2 dbname=x\"\n",
    "database: mysql://root:hunter2@db/shop\n",
    "database: \"postgresql://shop:hunter2@[db/shop\"\n",
    "database: \"hunter2${\"\n",
    "database: \"hunter2$\"\n",
    "database: \"hunter2${CONFIG_TEST_UNSET}\"\n",
    "listen_database: \"hunter2=\\n'\"\n",
    "database: shop\ndatabase_file: hunter2\n",
};

START_TEST(no_message_shows_a_secret)
{
    char text[400];
    struct error err;
    unsetenv("CONFIG_TEST_UNSET");
    snprintf(text, sizeof text, "%s" SINKS "queues:\n  q: { sink: log }\n", with_secret[_i]);
    expect_error(text, &err);
    ck_assert_ptr_null(strstr(err.text, "hunter2"));
}
END_TEST

START_TEST(databases_of_every_spelling_are_taken)
{
    static const char *const good[] = {"\"\"",
                                       "shop",
                                       "host=db dbname=shop",
                                       "service=shop",
                                       "postgresql:///shop",
                                       "postgres://u:p%20w@h1:5432,h2/shop?sslmode=require",
                                       "\"dbname = 'a b'\""};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char text[300];
        snprintf(text, sizeof text, "database: %s\n" SINKS "queues:\n  q: { sink: log }\n", good[i]);
        config_free(load(text));
    }
}
END_TEST

START_TEST(queues_share_settings_by_merge_keys)
{
    struct config *config = load(SINKS "queues:\n"
                                       "  a: &base\n"
                                       "    sink: log\n"
                                       "    table: a\n"
                                       "    connections: 3\n"
                                       "    retry: &retry { attempts: 4 }\n"
                                       "  b:\n"
                                       "    <<: *base\n"
                                       "    table: b\n"
                                       "  c: { sink: log, table: c, retry: *retry }\n");
    ck_assert_str_eq(config->queues[0].table, "a");
    ck_assert_str_eq(config->queues[1].table, "b");
    ck_assert_int_eq(config->queues[1].connections, 3);
    ck_assert_int_eq(config->queues[1].retry_attempts, 4);
    ck_assert_int_eq(config->queues[2].retry_attempts, 4);
    ck_assert_int_eq(config->queues[2].connections, 2);
    config_free(config);
}
END_TEST

START_TEST(one_table_may_serve_two_queues_that_divide_it)
{
    config_free(load(SINKS "queues:\n"
                           "  even: { sink: log, table: t, where: id % 2 = 0 }\n"
                           "  odd: { sink: log, table: public.t, where: id % 2 = 1 }\n"));
}
END_TEST

START_TEST(braces_of_a_destination_may_be_doubled)
{
    struct config *config = load(SINKS "queues:\n  q: { sink: log, destination: \"{{a}}{key}.{some col}{{{id}}}\" }\n");
    ck_assert_str_eq(config->queues[0].destination, "{{a}}{key}.{some col}{{{id}}}");
    config_free(config);
}
END_TEST

#define LONG_NAME "x23456789012345678901234567890123456789012345678901234567890123" /* 63 bytes */
#define QUEUE "queues:\n  q: { sink: log, table: t"

static const char *const good_names[] = {
    "sinks:\n  a-b_1: { type: discard }\nqueues:\n  q: { sink: a-b_1, table: t }\n",
    "sinks:\n  " LONG_NAME ": { type: discard }\nqueues:\n  q: { sink: " LONG_NAME ", table: t }\n",
    SINKS "queues:\n  q: { sink: log, table: " LONG_NAME "." LONG_NAME " }\n",
};

START_TEST(name_may_have_dashes_and_63_bytes)
{
    config_free(load(good_names[_i]));
}
END_TEST

static const char *const two_tables[] = {
    ", where: a }\n  r: { sink: log, table: t }\n",
    " }\n  r: { sink: log, table: public.t, where: a }\n",
};

static const struct {
    const char *text, *error;
} wrong[] = {
    {"sinks:\n  \"\": { type: discard }\n", "not a good name"},
    {"sinks:\n  " LONG_NAME "4: { type: discard }\n", "not a good name"},
    {"sinks:\n  a.b: { type: discard }\n", "not a good name"},
    {"sinks:\n  log: { type: [discard] }\n", "log.type"},
    {SINKS "queues:\n  q: { sink: log, table: " LONG_NAME "4 }\n", "is not a table's name"},
    {SINKS "queues:\n  q: { sink: log, table: a..b }\n", "is not a table's name"},
    {SINKS "queues:\n  q: { sink: log, table: \"a b\" }\n", "is not a table's name"},
    {SINKS "queues:\n  q: { sink: log, table: \"${}\" }\n", "cannot be read; write ${NAME}"},
    {SINKS "queues:\n  q: { sink: log, table: \"${1a}\" }\n", "cannot be read; write ${NAME}"},
    {SINKS "queues:\n  q: { sink: log, table: \"${" LONG_NAME LONG_NAME LONG_NAME "}\" }\n",
     "cannot be read; write ${NAME}"},
};

START_TEST(what_is_wrong_with_a_name_is_told_in_one_line)
{
    struct error err;
    expect_error(wrong[_i].text, &err);
    ck_assert_msg(strstr(err.text, wrong[_i].error) != NULL, "%s", err.text);
    ck_assert_ptr_null(strchr(err.text, '\n'));
}
END_TEST

START_TEST(queues_that_share_a_table_both_need_a_condition)
{
    struct error err;
    char text[300];
    snprintf(text, sizeof text, "%s%s%s", SINKS, QUEUE, two_tables[_i]);
    expect_error(text, &err);
    ck_assert_msg(strstr(err.text, "queue \"q\" already reads t") != NULL, "%s", err.text);
}
END_TEST

START_TEST(missing_file_is_told_by_its_name)
{
    struct error err;
    ck_assert_ptr_null(config_load("/nonexistent/pgcourier.yaml", &err));
    ck_assert_str_eq(err.text, "/nonexistent/pgcourier.yaml: cannot open: No such file or directory");
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
}
END_TEST

START_TEST(documentation_is_what_the_tables_say)
{
    char *printed = NULL;
    size_t printed_size, kept_size;
    struct error err;
    FILE *out = open_memstream(&printed, &printed_size);
    config_print_reference(out);
    fclose(out);
    char *kept = file_read("docs/configuration.md", 1 << 20, &kept_size, &err);
    ck_assert_msg(kept != NULL, "docs/configuration.md: %s", err.text);
    ck_assert_msg(strcmp(kept, printed) == 0,
                  "run: build/dev/pgcourier check-config --reference > docs/configuration.md");
    free(kept);
    free(printed);
}
END_TEST

int main(void)
{
    setenv("PGSSLMODE", "disable", 1); /* databases of other machines are named here, without a word on TLS */
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("config");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, every_value_of_a_queue_is_read);
    tcase_add_test(tcase, places_of_a_sink_that_nobody_has_counted_are_those_of_its_type);
    tcase_add_test(tcase, what_is_left_out_has_its_default);
    tcase_add_test(tcase, queue_without_table_reads_our_own_with_all_columns);
    tcase_add_loop_test(tcase, of_latency_and_longest_look_the_written_one_bounds_the_other, 0,
                        sizeof bounds / sizeof *bounds);
    tcase_add_test(tcase, variables_are_put_in_after_parsing);
    tcase_add_loop_test(tcase, secret_comes_from_its_file_without_the_last_line_end, 0,
                        sizeof secret_files / sizeof secret_files[0]);
    tcase_add_loop_test(tcase, several_secrets_come_from_a_file_one_a_line, 0,
                        sizeof files_of_secrets / sizeof files_of_secrets[0]);
    tcase_add_loop_test(tcase, no_message_shows_a_secret, 0, sizeof with_secret / sizeof with_secret[0]);
    tcase_add_test(tcase, databases_of_every_spelling_are_taken);
    tcase_add_test(tcase, queues_share_settings_by_merge_keys);
    tcase_add_test(tcase, one_table_may_serve_two_queues_that_divide_it);
    tcase_add_test(tcase, braces_of_a_destination_may_be_doubled);
    tcase_add_loop_test(tcase, name_may_have_dashes_and_63_bytes, 0, sizeof good_names / sizeof good_names[0]);
    tcase_add_loop_test(tcase, what_is_wrong_with_a_name_is_told_in_one_line, 0, sizeof wrong / sizeof wrong[0]);
    tcase_add_loop_test(tcase, queues_that_share_a_table_both_need_a_condition, 0, 2);
    tcase_add_test(tcase, missing_file_is_told_by_its_name);
    tcase_add_test(tcase, documentation_is_what_the_tables_say);
    return run_suite(suite);
}
