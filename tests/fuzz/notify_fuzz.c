/* What comes over the LISTEN connection: a notification of any channel and payload moves the next poll to now and
 * changes nothing else; the one statement sent is LISTEN with one name; and a server that says anything at all is
 * survived. */
#include "tests/fuzz/fake_server.h"
#include "tests/fuzz/sql_tokens.h"

#include "relay/claim/listen.h"

#include <endian.h>
#include <sanitizer/lsan_interface.h>

#define TURNS 10
#define NOW (5 * SECOND_US)

static struct fake_server server;
static char conninfo[160];

/* What the server has heard and where it is in its part. */
struct scene {
    char heard[8192];
    size_t heard_size;
    int cue;           /* 0 start-up, 1 the hello, 2 the settings, 3 LISTEN, 4 after it */
    int wild;          /* the cue at which `bytes` take the place of the right answer; 5: never */
    struct span bytes; /* framed: type, size, body, ... */
    struct span payload;
    const char *channel;
};

/* ---- the server's words ---- */

static void say(char type, struct span body)
{
    uint32_t size = htobe32((uint32_t)body.size + 4);
    char head[5] = {type};
    memcpy(head + 1, &size, sizeof size);
    fake_server_write(&server, (struct span){head, sizeof head});
    fake_server_write(&server, body);
}

#define COLUMN "a\0\0\0\0\0\0\0\0\0\0\31\377\377\377\377\377\377\0\0"

static void say_row(struct span columns, struct span row)
{
    say('T', columns);
    say('D', row);
    say('C', (struct span){"SELECT 1", 9});
}

/* The backend's number is that of the start-up: the session is the client's own. */
static void say_hello_row(void)
{
    static const char columns[] = "\0\4" COLUMN COLUMN COLUMN COLUMN;
    static const char row[] = "\0\4\0\0\0\1"
                              "7\0\0\0\5"
                              "false\0\0\0\4"
                              "UTF8\0\0\0\16"
                              "read committed";
    say_row((struct span){columns, sizeof columns - 1}, (struct span){row, sizeof row - 1});
}

static void say_settings_row(void)
{
    static const char columns[] = "\0\1" COLUMN, row[] = "\0\1\0\0\0\4UTF8";
    say_row((struct span){columns, sizeof columns - 1}, (struct span){row, sizeof row - 1});
}

static void say_right_answer(int cue)
{
    if (cue == 0) {
        say('R', (struct span){"\0\0\0\0", 4});
        say('K', (struct span){"\0\0\0\7\0\0\0\1", 8});
    } else {
        say('1', (struct span){"", 0});
        say('2', (struct span){"", 0});
    }
    if (cue == 1)
        say_hello_row();
    if (cue == 2)
        say_settings_row();
    if (cue == 3) {
        say('n', (struct span){"", 0});
        say('C', (struct span){"LISTEN", 7});
    }
    say('Z', (struct span){"I", 1});
}

/* Messages of any type and content, each with its true length: what libpq does with a length that lies is its own
 * affair, and it may ask for gigabytes. */
static void say_anything(struct span bytes)
{
    struct fuzz_input in = {(const uint8_t *)bytes.data, bytes.size};
    while (in.size > 0) {
        char type = (char)fuzz_byte(&in);
        say(type, fuzz_span(&in));
    }
}

/* ---- what the client says ---- */

/* The SQL of a Parse message, if that is what begins at `p`. */
static const char *parsed_sql(const char *p, size_t size)
{
    size_t name = size > 6 && p[0] == 'P' ? strnlen(p + 5, size - 5) : size; /* of the prepared statement */
    return name + 6 < size ? p + 5 + name + 1 : NULL;
}

static void check_listen(const char *sql, const char *channel)
{
    struct sql_token word, name, more;
    const char *p = sql_token_next(sql, &word);
    p = p ? sql_token_next(p, &name) : NULL;
    FUZZ_CHECK(p && !sql_token_next(p, &more), "not two tokens: %s", sql);
    FUZZ_CHECK(word.kind == SQL_NAME && span_equal(word.text, SPAN_LITERAL("listen")), "%s", sql);
    FUZZ_CHECK(name.kind == SQL_QUOTED_NAME, "%s", sql);
    char *value = sql_token_value(&name);
    FUZZ_CHECK(strcmp(value, channel) == 0, "%s for %s", sql, channel);
    free(value);
}

static void answer(struct scene *scene)
{
    if (!fake_server_accept(&server))
        return;
    size_t size = fake_server_read(&server, scene->heard, sizeof scene->heard - 1);
    if (size == 0)
        return;
    scene->heard[size] = '\0';
    const char *sql = parsed_sql(scene->heard, size);
    if (scene->cue == 3 && scene->wild > 3) {
        FUZZ_CHECK(sql, "no statement");
        check_listen(sql, scene->channel);
    }
    if (scene->cue == scene->wild)
        say_anything(scene->bytes);
    else if (scene->cue < 4)
        say_right_answer(scene->cue);
    scene->cue++;
}

/* ---- the play ---- */

static void turn(struct listener *listener, struct pollset *ps)
{
    struct error err;
    pollset_clear(ps);
    listener_prepare(listener, ps);
    pollset_deadline(ps, NOW); /* never wait: what is there is there */
    FUZZ_CHECK(pollset_wait(ps, NOW, &err), "%s", err.text);
    listener_ready(listener, ps, NOW);
}

static void notify(const struct scene *scene, struct listener *listener, struct pollset *ps, struct queue *queue)
{
    struct queue before = *queue;
    char body[1024] = {0, 0, 0, 7};
    size_t channel = strlen(scene->channel);
    memcpy(body + 4, scene->channel, channel + 1);
    memcpy(body + 5 + channel, scene->payload.data, scene->payload.size);
    say('A', (struct span){body, 4 + channel + 1 + strnlen(scene->payload.data, scene->payload.size) + 1});
    queue->pace.poll_at = INSTANT_NEVER;
    turn(listener, ps);
    FUZZ_CHECK(queue->pace.poll_at == NOW, "not woken");
    queue->pace.poll_at = before.pace.poll_at;
    struct span was = {(const char *)&before, sizeof before}, is = {(const char *)queue, sizeof *queue};
    FUZZ_CHECK(span_equal(was, is), "the queue changed");
}

static void play(struct scene *scene)
{
    static char name[] = "orders";
    const struct log log = {.level = LOG_ERROR, .fd = -1};
    char *channel = memory_text(scene->channel);
    struct queue_config config = {.name = name, .listen = channel};
    struct config process = {.database = conninfo, .statement_timeout_us = SECOND_US};
    struct queue queue = {.config = &config, .process = &process, .log = &log, .pace.poll_at = INSTANT_NEVER};
    struct listener *listener = listener_new(&queue);
    struct pollset *ps = pollset_new();
    for (int i = 0; i < TURNS; i++) {
        turn(listener, ps);
        answer(scene);
    }
    if (scene->wild == 5) {
        FUZZ_CHECK(scene->cue == 4 && queue.pace.poll_at == NOW, "not listening after %d answers", scene->cue);
        notify(scene, listener, ps, &queue);
    }
    fake_server_hang_up(&server);
    turn(listener, ps);
    listener_free(listener);
    pollset_free(ps);
    free(channel);
    while (fake_server_accept(&server))
        fake_server_hang_up(&server);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    char folder[64], path[100];
    snprintf(folder, sizeof folder, "@pgcourier-notify-fuzz-%d", (int)getpid());
    snprintf(path, sizeof path, "%s/.s.PGSQL.5432", folder);
    snprintf(conninfo, sizeof conninfo,
             "host=%s port=5432 user=u dbname=d passfile=/dev/null sslmode=disable gssencmode=disable", folder);
    fake_server_open(&server, path);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct scene scene = {.wild = fuzz_byte(&in) % 6};
    struct span name = fuzz_span(&in);
    name.size = name.size < 63 ? name.size : 63;
    char *channel = fuzz_text(name);
    scene.channel = channel;
    if (scene.wild == 5)
        scene.payload = fuzz_span(&in);
    else
        scene.bytes = fuzz_rest(&in);
    /* libpq loses results of its own when what the server says does not fit together. */
    if (scene.wild < 5)
        __lsan_disable();
    play(&scene);
    if (scene.wild < 5)
        __lsan_enable();
    free(channel);
    return 0;
}
