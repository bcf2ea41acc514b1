/* What comes over the waking connection: a notification that is meant for a queue moves its next poll to now, and no
 * other does; and a server that says anything at all is survived. */
#include "tests/fuzz/fake_server.h"

#include "relay/queue/queue.h"
#include "relay/rest/waking.h"
#include "relay/table/table.h"

#include <endian.h>
#include <sanitizer/lsan_interface.h>

#define TURNS 16
#define CUES 6
#define OID "4000000000"
#define NOW (5 * SECOND_US)

static struct fake_server server;
static char conninfo[160];

/* What the server has heard and where it is in its part. */
struct scene {
    char heard[8192];
    size_t heard_size;
    int cue;           /* 0 start-up, 1 the hello, 2 the settings, 3 LISTEN, 4 the locks, 5 their end */
    int wild;          /* the cue at which `bytes` take the place of the right answer; CUES: never */
    struct span bytes; /* framed: type, size, body, ... */
    struct span payload;
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

/* Locked, and what notifications call the queue: 7. */
static void say_lock_row(void)
{
    static const char columns[] = "\0\2" COLUMN COLUMN, row[] = "\0\2\0\0\0\1\1\0\0\0\10\0\0\0\0\0\0\0\7";
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
    if (cue > 3)
        say_lock_row();
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

static void answer(struct scene *scene)
{
    if (!fake_server_accept(&server))
        return;
    size_t size = fake_server_read(&server, scene->heard, sizeof scene->heard - 1);
    if (size == 0)
        return;
    scene->heard[size] = '\0';
    if (scene->cue == scene->wild)
        say_anything(scene->bytes);
    else if (scene->cue < CUES)
        say_right_answer(scene->cue);
    scene->cue++;
}

/* ---- the play ---- */

static void turn(struct waking *waking, struct pollset *ps)
{
    struct error err;
    pollset_clear(ps);
    waking_prepare(waking, ps);
    pollset_deadline(ps, NOW); /* never wait: what is there is there */
    FUZZ_CHECK(pollset_wait(ps, NOW, &err), "%s", err.text);
    waking_ready(waking, ps, NOW);
}

static void notify(const struct scene *scene, struct waking *waking, struct pollset *ps, struct queue *queue)
{
    static const char channel[] = "pgcourier";
    char body[1024] = {0, 0, 0, 7}, *text = body + 4 + sizeof channel;
    memcpy(body + 4, channel, sizeof channel);
    memcpy(text, scene->payload.data, scene->payload.size);
    say('A', (struct span){body, (size_t)(text - body) + strlen(text) + 1});
    bool meant = text[0] == '\0' || strcmp(text, "t" OID) == 0 || strcmp(text, "q7") == 0;
    queue->pace.poll_at = INSTANT_NEVER;
    turn(waking, ps);
    FUZZ_CHECK(queue->pace.poll_at == (meant ? NOW : INSTANT_NEVER), "%s: woken %d", text, !meant);
}

static void play(struct scene *scene)
{
    static char name[] = "orders";
    const struct log log = {.level = LOG_ERROR, .fd = -1};
    const struct queue_config config = {.name = name};
    const struct config process = {.database = conninfo, .statement_timeout_us = SECOND_US};
    struct table table = {.oid = 4000000000U};
    struct queue queue = {.config = &config,
                          .process = &process,
                          .log = &log,
                          .table = &table,
                          .rest = {.state = REST_LOCKING, .lock = REST_LOCK_WANTED}};
    struct queue *const queues[] = {&queue};
    struct waking *waking = waking_new(&process, queues, 1, 1);
    struct pollset *ps = pollset_new();
    for (int i = 0; i < TURNS; i++) {
        turn(waking, ps);
        answer(scene);
        if (queue.rest.lock == REST_LOCKED)
            queue.rest.lock = REST_UNLOCK_WANTED;
    }
    if (scene->wild == CUES) {
        FUZZ_CHECK(scene->cue == CUES && queue.rest.lock == REST_UNLOCKED, "cue %d, lock %d", scene->cue,
                   (int)queue.rest.lock);
        notify(scene, waking, ps, &queue);
    }
    fake_server_hang_up(&server);
    turn(waking, ps);
    FUZZ_CHECK(queue.rest.lock == REST_UNLOCKED || queue.rest.lock == REST_LOCK_WANTED, "lock %d",
               (int)queue.rest.lock);
    waking_free(waking);
    pollset_free(ps);
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
    static const struct span meant[] = {{"", 0}, {"t" OID, 11}, {"q7", 2}};
    struct scene scene = {.wild = fuzz_byte(&in) % (CUES + 1)};
    size_t choice = fuzz_byte(&in) % 4;
    if (scene.wild == CUES)
        scene.payload = choice < 3 ? meant[choice] : fuzz_span(&in);
    else
        scene.bytes = fuzz_rest(&in);
    /* libpq loses results of its own when what the server says does not fit together. */
    if (scene.wild < CUES)
        __lsan_disable();
    play(&scene);
    if (scene.wild < CUES)
        __lsan_enable();
    return 0;
}
