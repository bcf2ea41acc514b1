/* What Redis says: every error reply has one verdict and one line about it, and a server that says anything at all gets
 * every delivery exactly one verdict, none of them an ack that it did not give. */
#include "tests/fuzz/fake_server.h"

#include "sinks/redis/redis_verdict.h"
#include "sinks/sink.h"

#define DELIVERIES 3
#define TURNS 12

static struct fake_server server;
static char url[128];

/* ---- the mapping ---- */

static void check_reply(struct span reply)
{
    const struct redis_verdict *rule = redis_verdict_find(reply);
    FUZZ_CHECK(rule->verdict == VERDICT_RETRY || rule->verdict == VERDICT_REJECTED, "verdict %d", rule->verdict);
    size_t prefix = strlen(rule->prefix);
    FUZZ_CHECK((rule->verdict == VERDICT_REJECTED) == (rule->kind == ERROR_REFUSED && prefix > 0), "kind %d",
               rule->kind);
    FUZZ_CHECK(prefix <= reply.size && memcmp(reply.data, rule->prefix, prefix) == 0, "%s for %.*s", rule->prefix,
               (int)reply.size, reply.data);
    struct error err = {0}, short_err = {0};
    redis_verdict_explain(rule, reply, &err);
    const char *arguments = memmem(reply.data, reply.size, ", with args", strlen(", with args"));
    struct span without = {reply.data, arguments ? (size_t)(arguments - reply.data) : reply.size};
    redis_verdict_explain(rule, without, &short_err);
    FUZZ_CHECK(strcmp(err.text, short_err.text) == 0, "arguments shown: %s", err.text);
    for (const char *c = err.text; *c; c++)
        FUZZ_CHECK((unsigned char)*c >= ' ' && *c != 0x7f, "byte 0x%02x", (unsigned char)*c);
}

/* ---- the conversation ---- */

static struct sink *open_sink(void *settings, int command)
{
    static const char *const commands[] = {"stream", "list", "publish"};
    const struct sink_type *type = sink_type_find("redis");
    struct error err = {0};
    setting_defaults(type->settings, settings);
    bool set = setting_parse(setting_find(type->settings, "url"), url, settings, &err) &&
               setting_parse(setting_find(type->settings, "command"), commands[command], settings, &err);
    struct sink *sink = set ? sink_open(type, "fuzz", settings, &err) : NULL;
    FUZZ_CHECK(sink, "%s", err.text);
    return sink;
}

static void turn(struct sink *sink, struct pollset *ps, instant_us now)
{
    struct error err;
    pollset_clear(ps);
    sink_prepare(sink, ps);
    pollset_deadline(ps, now); /* never wait: what is there is there */
    FUZZ_CHECK(pollset_wait(ps, now, &err), "%s", err.text);
    sink_progress(sink, ps, now);
}

/* Answers the first words and then says `bytes`; what it said in all is enough to count what it can have acked. */
static void converse(struct sink *sink, struct span bytes, bool greet)
{
    char heard[4096];
    struct pollset *ps = pollset_new();
    bool said = false;
    for (int i = 0; i < TURNS; i++) {
        turn(sink, ps, 1 + i);
        if (!fake_server_accept(&server) || fake_server_read(&server, heard, sizeof heard) == 0)
            continue;
        if (greet) {
            fake_server_write(&server, SPAN_LITERAL("+PONG\r\n"));
            greet = false;
        } else if (!said) {
            fake_server_write(&server, bytes);
            said = true;
        }
    }
    /* Whoever connects again finds nobody: what is left gets its verdict. */
    for (int i = 0; i < TURNS && sink->in_flight > 0; i++) {
        fake_server_accept(&server);
        fake_server_hang_up(&server);
        turn(sink, ps, (1 + i) * SECOND_US);
    }
    fake_server_accept(&server);
    fake_server_hang_up(&server);
    pollset_free(ps);
}

static size_t count(struct span bytes, char c)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes.size; i++)
        n += bytes.data[i] == c;
    return n;
}

static size_t take_verdicts(struct sink *sink, size_t *ret_acked)
{
    size_t verdicts = 0;
    for (struct delivery *d; (d = sink_take_resolved(sink)) != NULL; verdicts++) {
        FUZZ_CHECK(d->verdict != VERDICT_NONE, "no verdict");
        FUZZ_CHECK((d->verdict == VERDICT_ACKED) == (d->cause == NULL), "verdict %d", d->verdict);
        *ret_acked += d->verdict == VERDICT_ACKED;
        if (d->cause)
            fuzz_check_error(d->cause);
    }
    return verdicts;
}

static void check_conversation(struct span bytes, int command, bool greet)
{
    void *settings = memory_new(sink_type_find("redis")->settings_size);
    struct sink *sink = open_sink(settings, command);
    struct arena *arena = arena_new();
    struct event events[DELIVERIES];
    struct delivery deliveries[DELIVERIES], *ds[DELIVERIES];
    for (int i = 0; i < DELIVERIES; i++) {
        events[i] = (struct event){.id = i + 1, .key = SPAN_LITERAL("k"), .payload = SPAN_LITERAL("{}"), .attempt = 1};
        deliveries[i] = (struct delivery){.event = &events[i], .arena = arena, .destination = SPAN_LITERAL("orders")};
        ds[i] = &deliveries[i];
    }
    FUZZ_CHECK(sink_submit(sink, ds, DELIVERIES, 1) == DELIVERIES, "a short count");
    converse(sink, bytes, greet);
    size_t acked = 0, verdicts = take_verdicts(sink, &acked);
    FUZZ_CHECK(verdicts == DELIVERIES && sink->in_flight == 0, "%zu verdicts, %zu in flight", verdicts,
               sink->in_flight);
    FUZZ_CHECK(acked <= count(bytes, command == 0 ? '$' : ':'), "%zu acked", acked);
    sink_close(sink);
    arena_free(arena);
    setting_free(sink_type_find("redis")->settings, settings);
    free(settings);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    const char *folder = getenv("TMPDIR");
    char path[100];
    snprintf(path, sizeof path, "%s/redis-fuzz-%d.sock", folder ? folder : "/tmp", (int)getpid());
    fake_server_open(&server, path);
    snprintf(url, sizeof url, "unix://%s", path);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    unsigned char what = fuzz_byte(&in);
    struct span rest = fuzz_rest(&in);
    if (what & 1)
        check_conversation(rest, what / 4 % 3, what & 2);
    else
        check_reply(rest);
    return 0;
}
