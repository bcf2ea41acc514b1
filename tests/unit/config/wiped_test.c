/* What held a secret is overwritten before it is freed: of the configuration, read well or badly, and of its sinks.
 * What libraries make of it is theirs. */
#include "relay/base/arena.h"
#include "relay/base/clock.h"
#include "relay/config/config.h"
#include "relay/config/config_warning.h"
#include "sinks/http/http_url.h"
#include "sinks/redis/redis_address.h"
#include "sinks/sink.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define CANARY "canary-7f3a"
#define CANARY_BASE64 "Y2FuYXJ5LTdmM2"
#define SIGNING_SECRET "whsec_" CANARY_BASE64 "EtYW5kLTI0LWJ5dGVz"

/* ---- what the linker puts in place of free and realloc ---- */

static char left[200]; /* the first thing that was left */

void __real_free(void *block);
void *__real_realloc(void *old, size_t bytes);
void __wrap_free(void *block);
void *__wrap_realloc(void *old, size_t bytes);

static void look_into(const void *block)
{
    size_t size = block ? malloc_usable_size((void *)(uintptr_t)block) : 0;
    const char *found = size ? memmem(block, size, CANARY, strlen(CANARY)) : NULL;
    if (size && !found)
        found = memmem(block, size, CANARY_BASE64, strlen(CANARY_BASE64));
    if (found && !left[0])
        snprintf(left, sizeof left, "%zu bytes, %zu from their beginning: %.*s", size,
                 (size_t)(found - (const char *)block), (int)strnlen(found, 40), found);
}

void __wrap_free(void *block)
{
    look_into(block);
    __real_free(block);
}

/* Always moves, as it may: what it leaves behind is freed as it stands. */
void *__wrap_realloc(void *old, size_t bytes)
{
    void *moved = malloc(bytes);
    size_t size = old ? malloc_usable_size(old) : 0;
    if (moved && old)
        memcpy(moved, old, size < bytes ? size : bytes);
    look_into(old);
    __real_free(old);
    return moved;
}

/* ---- configurations ---- */

static int memory_file(const char *text)
{
    int fd = memfd_create("config", MFD_CLOEXEC);
    ck_assert_int_eq((int)write(fd, text, strlen(text)), (int)strlen(text));
    return fd;
}

static struct config *load(const char *text)
{
    char path[32];
    int fd = memory_file(text);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct error err = {0};
    struct config *config = config_load(path, &err);
    ck_assert_msg(!strstr(err.text, CANARY) && !strstr(err.text, CANARY_BASE64), "%s", err.text);
    close(fd);
    return config;
}

static const char whole[] =
    "database: \"host=h sslmode=disable dbname=d password=" CANARY "-database\"\n"
    "listen_database: \"host=h sslmode=disable password=${CANARY_VARIABLE}\"\n"
    "sinks:\n"
    "  web:\n"
    "    type: http\n"
    "    url: http://u:" CANARY "-user@127.0.0.1:1/in?token=" CANARY "-query\n"
    "    headers: { X-A: \"" CANARY
    "-header ${CANARY_VARIABLE} and more that makes it grow, and more, and more\", X-B: c }\n"
    "    connect_timeout: 20ms\n"
    "  token: { type: http, url: \"http://127.0.0.1:1/\", bearer_token: " CANARY "-token }\n"
    "  signed: { type: http, url: \"http://127.0.0.1:1/\", secrets: [ " SIGNING_SECRET ", \"${CANARY_SECRET}\" ] }\n"
    "  signed_file: { type: http, url: \"http://127.0.0.1:1/\", secrets_file: %s }\n"
    "  token_file: { type: http, url: \"http://127.0.0.1:1/\", bearer_token_file: %s }\n"
    "  mem: { type: redis, url: \"redis://u:" CANARY "-redis@127.0.0.1:1/0\" }\n"
    "  mem_both: { type: redis, url: \"redis://:" CANARY "-old@127.0.0.1:1\", password: " CANARY "-new }\n"
    "  mem_file: { type: redis, url: \"redis://127.0.0.1:1\", password_file: %s }\n"
    "  bus: { type: kafka, down_after: 100ms, sasl_password: " CANARY
    "-sasl, properties: { bootstrap.servers: \"127.0.0.1:1\",\n"
    "         security.protocol: sasl_plaintext, sasl.mechanism: PLAIN, sasl.username: me } }\n"
    "  run: { type: exec, command: [ sh, -c, \"exit 0\", " CANARY "-argument ], environment: { TOKEN: " CANARY
    "-environment } }\n"
    "queues:\n"
    "  orders: { sink: web, destination: x }\n";

/* With the names of files that hold a secret, or several. */
static struct config *load_whole(void)
{
    static char text[4000];
    int file = memory_file(CANARY "-file\n"), signing = memory_file(SIGNING_SECRET "\r\n\n" SIGNING_SECRET "\n");
    char path[32], signing_path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    snprintf(signing_path, sizeof signing_path, "/proc/self/fd/%d", signing);
    int size = snprintf(text, sizeof text, whole, signing_path, path, path);
    ck_assert(size > 0 && (size_t)size < sizeof text);
    struct config *config = load(text);
    close(file);
    close(signing);
    return config;
}

static void begin(void)
{
    setenv("CANARY_VARIABLE", CANARY "-variable", 1);
    setenv("CANARY_SECRET", SIGNING_SECRET, 1);
    left[0] = '\0';
}

static void nothing_is_left(const char *of)
{
    ck_assert_msg(!left[0], "%s left %s", of, left);
}

static void ignore(const struct config_warning *warning, void *arg)
{
    (void)arg;
    ck_assert_ptr_null(strstr(warning->text, CANARY));
}

START_TEST(configuration_leaves_no_secret)
{
    begin();
    struct config *config = load_whole();
    ck_assert_ptr_nonnull(config);
    config_warnings(config, ignore, NULL);
    nothing_is_left("reading it");
    config_free(config);
    nothing_is_left("letting go of it");
}
END_TEST

/* Of a sink's mapping, or the whole of a file. */
static const char *const broken[] = {
    "type: http, url: \"http://me:" CANARY "@h:bad/\"",
    "type: http, url: \"ftp://me:" CANARY "@h/\"",
    "type: http, url: \"http://h/?t=" CANARY " y\"",
    "type: http, url: \"http://h/?t=" CANARY "#f\"",
    "type: redis, url: \"redis://me:" CANARY "@h:99999/\"",
    "type: redis, url: \"redis://me:" CANARY "%zz@h/\"",
    "type: redis, url: \"redis://h/?password=" CANARY "\"",
    "type: http, url: \"http://h/\", proxy: \"ftp://me:" CANARY "@h\"",
    "type: http, url: \"http://h/\", headers: { X: \"" CANARY "\\r\\nEvil: 1\" }",
    "type: http, url: \"http://h/\", headers: { X: [\"" CANARY "\"] }",
    "type: http, url: \"http://h/\", headers: { X: \"" CANARY "\", X: \"" CANARY "\" }",
    "type: http, url: \"http://h/\", headers: { Authorization: \"" CANARY "\" }, bearer_token: \"" CANARY "\"",
    "type: http, url: \"http://h/\", bearer_token: \"" CANARY "\\nX\"",
    "type: http, url: \"http://h/\", bearer_tokn: \"" CANARY "\"",
    "type: http, url: \"http://h/\", bearer_token: \"" CANARY "\", bearer_token_file: \"/none\"",
    "type: http, url: \"http://h/\", secrets: \"" SIGNING_SECRET "\"",
    "type: http, url: \"http://h/\", secrets: [ \"" CANARY "\" ]",
    "type: http, url: \"http://h/\", secrets: [ " SIGNING_SECRET ", " SIGNING_SECRET "- ]",
    "type: http, url: \"http://h/\", secrets: [ " SIGNING_SECRET SIGNING_SECRET " ]",
    "type: http, url: \"http://h/\", secrets: [ whsec_" CANARY_BASE64 " ]",
    "type: http, url: \"http://h/\", secrets: [ " SIGNING_SECRET ", [ " SIGNING_SECRET " ] ]",
    "type: redis, url: \"redis://h/\", password: \"" CANARY "${\"",
    "type: redis, url: \"redis://h/\", password: \"" CANARY "${CANARY_VARIABLE}${NO_SUCH}\"",
    "type: redis, url: \"redis://h/\", password: \"" CANARY "\\0\"",
    "type: redis, url: \"redis://h/\", password: \"" CANARY,
    "type: kafka, properties: { bootstrap.servers: h, security.protocol: ssl, ssl.key.pem: \"" CANARY "\" }",
    "type: kafka, properties: { bootstrap.servers: h, sasl.passwrd: \"" CANARY "\" }",
    "type: exec, command: [sh, \"" CANARY "\", [\"" CANARY "\"]]",
    "type: exec, command: [sh], environment: { TOKEN: \"" CANARY "\", \"A=\": x }",
    "type: discard, " CANARY ": &a \"" CANARY "\", b: *c",
};

START_TEST(broken_configuration_leaves_no_secret)
{
    begin();
    char text[1000];
    snprintf(text, sizeof text,
             "database: \"dbname=x password=%s\"\nsinks:\n  s: { %s }\nqueues:\n  q: { sink: s, destination: d }\n",
             CANARY, broken[_i]);
    struct config *config = load(text);
    if (config) /* what is wrong with it is found when the sink is opened */
        for (size_t i = 0; i < config->sink_count; i++) {
            struct error err = {0};
            const struct sink_config *sink = &config->sinks[i];
            sink_close(sink_open(sink->type, sink->name, sink->settings, &err));
        }
    config_free(config);
    nothing_is_left(broken[_i]);
}
END_TEST

START_TEST(address_that_cannot_be_read_leaves_no_secret)
{
    begin();
    struct redis_address address;
    struct error err;
    ck_assert(!redis_address_parse("redis://me:" CANARY "%zz@h/", &address, &err));
    ck_assert(!redis_address_parse("redis://me:" CANARY "@h:1/x", &address, &err));
    struct http_url url;
    ck_assert(!http_url_init(&url, "http://me:" CANARY "@h/?" CANARY "#f", &err));
    nothing_is_left("an address");
}
END_TEST

/* ---- sinks ---- */

#define PATIENCE_US (20 * SECOND_US)

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

/* Nobody listens there. */
static void deliver(struct sink *sink)
{
    struct arena *arena = arena_new();
    struct pollset *ps = pollset_new();
    struct event event = {.id = 1, .key = SPAN_LITERAL("k"), .type = SPAN_LITERAL("paid"), .attempt = 1};
    struct delivery delivery = {.event = &event, .arena = arena, .destination = SPAN_LITERAL("orders")}, *d = &delivery;
    ck_assert_uint_eq(sink_submit(sink, &d, 1, clock_now()), 1);
    struct error probe_err;
    sink_probe(sink, delivery.destination, clock_now(), &probe_err);
    for (instant_us end = clock_now() + PATIENCE_US; sink->in_flight > 0 && clock_now() < end;)
        turn(sink, ps);
    ck_assert_ptr_eq(sink_take_resolved(sink), d);
    pollset_free(ps);
    arena_free(arena);
}

START_TEST(sinks_leave_no_secret)
{
    begin();
    struct config *config = load_whole();
    ck_assert_ptr_nonnull(config);
    for (size_t i = 0; i < config->sink_count; i++) {
        struct error err = {0};
        const struct sink_config *of = &config->sinks[i];
        struct sink *sink = sink_open(of->type, of->name, of->settings, &err);
        ck_assert_msg(sink != NULL, "%s", err.text);
        deliver(sink);
        sink_close(sink);
        nothing_is_left(of->name);
    }
    config_free(config);
}
END_TEST

/* The check of the check. */
START_TEST(secret_that_is_left_is_found)
{
    begin();
    free(memory_text("a " CANARY));
    ck_assert_msg(strstr(left, CANARY) != NULL, "%s", left);
    left[0] = '\0';
    char *text = memory_resize(memory_text(CANARY), 4000, 1);
    ck_assert_msg(strstr(left, CANARY) != NULL, "%s", left);
    left[0] = '\0';
    memory_wipe(text);
    nothing_is_left("a text that is wiped");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wiped");
    TCase *tcase = tcase_create("wiped");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, secret_that_is_left_is_found);
    tcase_add_test(tcase, configuration_leaves_no_secret);
    tcase_add_loop_test(tcase, broken_configuration_leaves_no_secret, 0, (int)(sizeof broken / sizeof broken[0]));
    tcase_add_test(tcase, address_that_cannot_be_read_leaves_no_secret);
    tcase_add_test(tcase, sinks_leave_no_secret);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
