/* Running out of memory while the configuration is read and while sinks are opened, used and closed. */
#include "tests/unit/memory/allocation.h"

#include "relay/base/clock.h"
#include "relay/config/config.h"
#include "relay/postgres/db.h"
#include "relay/queue/queue.h"
#include "relay/rest/waking.h"
#include "relay/table/table_sql.h"
#include "sinks/json_line.h"
#include "sinks/sink.h"
#include "sql_text.h"

#include <sys/mman.h>

#define PATIENCE_US (20 * SECOND_US)

/* ---- configuration ---- */

static const char whole[] = "database: host=h sslmode=disable dbname=d\n"
                            "listen_database: ${PATH:-x}\n"
                            "sinks:\n"
                            "  web:\n"
                            "    type: http\n"
                            "    url: https://u:p@h/in\n"
                            "    headers: { X-A: \"a$$b\", X-B: c }\n"
                            "  bus: &bus\n"
                            "    type: redis\n"
                            "    url: redis://h\n"
                            "    password_file: tests/unit/config/broken_configs/02-only-a-list.yaml\n"
                            "  more: { <<: *bus, command: list }\n"
                            "  k: { type: kafka, properties: { bootstrap.servers: \"h:1\" } }\n"
                            "queues:\n"
                            "  orders:\n"
                            "    sink: web\n"
                            "    table: shop.events\n"
                            "    columns: { id: id, key: order_id, payload: body }\n"
                            "    where: \"status <> 'draft'\"\n"
                            "    destination: \"orders/{type}\"\n"
                            "    retry: { base: 1s, max: 1m, attempts: 5 }\n"
                            "  more: { sink: bus, destination: x }\n";

static const char unknown_sink[] = "database: host=/h\n"
                                   "sinks: { out: { type: file, path: p } }\n"
                                   "queues: { a: { sink: uot } }\n";

static const char unknown_key[] = "database: ${PATH}\nsinks: { out: { type: file, pth: p } }\n";
static const char no_yaml[] = "database: \"x\nsinks: [";

static void load(const char *text, bool good)
{
    char path[32];
    int fd = memfd_create("config", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ck_assert_int_eq((int)write(fd, text, strlen(text)), (int)strlen(text));
    struct error err = {0};
    struct config *config = config_load(path, &err);
    ck_assert_msg(good == (config != NULL), "%s", err.text);
    config_free(config);
    close(fd);
}

static void load_whole(void)
{
    load(whole, true);
}

static void load_unknown_sink(void)
{
    load(unknown_sink, false);
}

static void load_unknown_key(void)
{
    load(unknown_key, false);
}

static void load_no_yaml(void)
{
    load(no_yaml, false);
}

/* ---- sinks ---- */

static void turn(struct sink *sink, struct pollset *ps)
{
    struct error err;
    instant_us now = clock_now();
    pollset_clear(ps);
    sink_prepare(sink, ps);
    pollset_deadline(ps, now + 10 * MS_US);
    ck_assert(pollset_wait(ps, now, &err));
    sink_progress(sink, ps, clock_now());
}

/* Two events through an open sink, whatever becomes of them: one verdict each. */
static void deliver(struct sink *sink)
{
    struct arena *arena = arena_new();
    struct pollset *ps = pollset_new();
    struct event events[2] = {{.id = 1, .key = SPAN_LITERAL("k"), .type = SPAN_LITERAL("paid"), .attempt = 1},
                              {.id = 2, .key = SPAN_LITERAL("l"), .payload = SPAN_LITERAL("{\"a\":1}"), .attempt = 2}};
    events[1].headers = SPAN_LITERAL("{\"a\":\"b\",\"c\":[1,2]}");
    struct delivery deliveries[2], *ds[2];
    for (int i = 0; i < 2; i++) {
        deliveries[i] = (struct delivery){.event = &events[i], .arena = arena, .destination = SPAN_LITERAL("orders")};
        ds[i] = &deliveries[i];
    }
    size_t taken = sink_submit(sink, ds, 2, clock_now()), verdicts = 0;
    for (instant_us end = clock_now() + PATIENCE_US; sink->in_flight > 0 && clock_now() < end;)
        turn(sink, ps);
    struct error err;
    if (!sink_reopen(sink, &err))
        ck_assert_int_ne(err.kind, ERROR_NONE);
    while (sink_take_resolved(sink))
        verdicts++;
    ck_assert_uint_eq(verdicts, taken);
    pollset_free(ps);
    arena_free(arena);
}

static void use_sink(const char *type_name, const char *const settings[][2])
{
    const struct sink_type *type = sink_type_find(type_name);
    void *values = memory_new(type->settings_size ? type->settings_size : 1);
    struct error err = {0};
    setting_defaults(type->settings, values);
    for (size_t i = 0; settings[i][0]; i++) {
        const struct setting *setting = setting_find(type->settings, settings[i][0]);
        if (setting->kind == SETTING_MAP)
            setting_map_put(setting, "bootstrap.servers", settings[i][1], values);
        else if (setting->kind == SETTING_LIST || setting->kind == SETTING_SECRETS)
            ck_assert_msg(setting_list_add(setting, settings[i][1], values, &err), "%s", err.text);
        else
            ck_assert_msg(setting_parse(setting, settings[i][1], values, &err), "%s", err.text);
    }
    struct sink *sink = sink_open(type, "out", values, &err);
    if (sink)
        deliver(sink);
    else
        ck_assert_msg(is_touched() && err.kind != ERROR_NONE, "%s", err.text);
    sink_close(sink);
    setting_free(type->settings, values);
    free(values);
}

static void use_file(void)
{
    use_sink("file", (const char *const[][2]){{"path", "/dev/null"}, {NULL, NULL}});
}

static void use_discard(void)
{
    use_sink("discard", (const char *const[][2]){{NULL, NULL}});
}

/* Nobody listens on port 1: what the sinks do about it is enough to go through most of them. */
static void use_http(void)
{
    use_sink("http", (const char *const[][2]){{"url", "http://127.0.0.1:1/in?k=v"},
                                              {"bearer_token", "t"},
                                              {"secrets", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"},
                                              {"secrets", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI0"},
                                              {"connect_timeout", "20ms"},
                                              {"timeout", "20ms"},
                                              {NULL, NULL}});
}

static void use_redis(void)
{
    use_sink("redis", (const char *const[][2]){
                          {"url", "redis://127.0.0.1:1"}, {"username", "u"}, {"password", "p"}, {NULL, NULL}});
}

static void use_exec(void)
{
    use_sink("exec", (const char *const[][2]){
                         {"command", "sh"}, {"command", "-c"}, {"command", "exit 0"}, {"batch", "2"}, {NULL, NULL}});
}

static void use_kafka(void)
{
    use_sink("kafka", (const char *const[][2]){{"properties", "127.0.0.1:1"}, {"down_after", "100ms"}, {NULL, NULL}});
}

/* ---- texts ---- */

static void write_line(void)
{
    static const char quotes[] = "\"\\\n\x01\xff";
    struct event event = {.id = 1, .key = {quotes, 4}, .payload = {quotes, 5}, .payload_kind = PAYLOAD_BYTES};
    event.headers = SPAN_LITERAL("{\"a\":\n1}");
    event.headers_kind = PAYLOAD_TEXT;
    char large[2000];
    memset(large, 'x', sizeof large);
    event.type = (struct span){large, sizeof large};
    const struct delivery d = {.event = &event, .destination = SPAN_LITERAL("to")};
    struct json_writer json = {0};
    json_line_write(&json, &d);
    ck_assert_ptr_nonnull(memmem(json.data, json.size, "\"headers\":{\"a\":", 15));
    json_writer_done(&json);
}

static void render(void)
{
    static char name[] = "\"t\"", plain[] = "t", id[] = "\"id\"", key[] = "\"k\"";
    const struct table table = {.name_sql = name, .plain_name = plain, .id_sql = id, .key_sql = key};
    const struct queue_config queue = {.name = plain, .max_event_bytes = 10};
    struct arena *arena = arena_new();
    struct error err;
    char *sql = sql_render(sql_per_key_read, table_variables(&table, &queue, arena), &err);
    ck_assert_ptr_nonnull(sql);
    free(sql);
    arena_free(arena);
}

/* ---- a database that is not there ---- */

static void wake_nobody(void)
{
    static char name[] = "orders", nowhere[] = "host=/nonexistent dbname=d";
    const struct log log = {.level = LOG_ERROR, .fd = -1};
    const struct queue_config config = {.name = name};
    const struct config process = {.database = nowhere, .statement_timeout_us = SECOND_US};
    struct queue queue = {.config = &config, .process = &process, .log = &log, .rest.lock = REST_LOCK_WANTED};
    struct queue *const queues[] = {&queue};
    struct waking *waking = waking_new(&process, queues, 1, 1);
    struct pollset *ps = pollset_new();
    for (int i = 0; i < 4; i++) {
        pollset_clear(ps);
        waking_prepare(waking, ps);
        waking_ready(waking, ps, i * SECOND_US);
    }
    waking_free(waking);
    pollset_free(ps);
}

static const struct scene scenes[] = {
    {"a whole configuration", load_whole},
    {"a configuration with an unknown sink", load_unknown_sink},
    {"a configuration with an unknown key", load_unknown_key},
    {"no YAML", load_no_yaml},
    {"file sink", use_file},
    {"discard sink", use_discard},
    {"http sink", use_http},
    {"redis sink", use_redis},
    {"kafka sink", use_kafka},
    {"exec sink", use_exec},
    {"a line of JSON", write_line},
    {"a statement", render},
    {"the waking connection", wake_nobody},
};

START_TEST(no_memory_is_said_once_and_ends_the_process_or_is_got_over)
{
    allocation_fail_each(&scenes[_i]);
}
END_TEST

int main(void)
{
    return allocation_run("allocation", no_memory_is_said_once_and_ends_the_process_or_is_got_over,
                          (int)(sizeof scenes / sizeof scenes[0]));
}
