/* Redis: a stream entry, a list element or a message per event. docs/sinks/redis.md says what they hold.
 *
 * Deliveries go waiting -> sent (their command is in the connection's buffer or beyond) -> answered. Commands are
 * pipelined, and Redis answers in order, so the oldest in `sent` is the one a reply belongs to. A pipeline goes on
 * after an error, hence no SINK_KEEPS_KEY_ORDER; a run is one command, see redis_run.h.
 *
 * When the connection is lost, a command that the kernel took whole may have been executed: UNKNOWN. One that it did
 * not take whole cannot have been: RETRY. */
#include "relay/base/backoff.h"
#include "relay/base/fault_point.h"
#include "sinks/delivery_queue.h"
#include "sinks/redis/redis_address.h"
#include "sinks/redis/redis_command.h"
#include "sinks/redis/redis_link.h"
#include "sinks/redis/redis_run.h"
#include "sinks/redis/redis_settings.h"
#include "sinks/redis/redis_verdict.h"
#include "sinks/sink.h"

#include <stdlib.h>

#define BUFFER_BYTES ((size_t)256 * 1024) /* of commands not yet written, beyond which deliveries wait as they are */
#define ROUNDS_MAX 16                     /* of reading in one turn, so that other sinks get theirs */
#define CLOSE_MAX_US SECOND_US
#define CLOSE_TURN_US (20 * MS_US)

static const struct backoff reconnect = {.base_us = 50 * MS_US, .max_us = SECOND_US};

struct redis {
    struct sink sink;
    const struct redis_settings *settings;
    struct redis_address address;
    struct redis_link *link;
    struct redis_run *run;
    struct delivery_queue waiting, sent;
    uint64_t commands, replies; /* on this connection, after its handshake; both count the probe's PING */
    bool leaving;               /* this server is the wrong one: send nothing more, take the answers, reconnect */
    unsigned failures;          /* in a row */
    instant_us retry_at;
    struct rng rng;
    enum reach probe;
    struct error unreached; /* why, when it is REACH_NO */
    bool probing;
    uint64_t probe_command; /* which of `commands` is the PING; 0: the handshake's PING is the probe */
};

/* ---- opening and closing ---- */

static void replace(char **text, const char *with)
{
    if (!with)
        return;
    memory_wipe(*text);
    *text = memory_text(with);
}

static void redis_free(struct redis *redis)
{
    redis_link_free(redis->link);
    redis_run_free(redis->run);
    redis_address_done(&redis->address);
    free(redis);
}

static struct sink *redis_open(const char *name, const void *settings, struct error *err)
{
    struct redis *redis = memory_new(sizeof *redis);
    redis->settings = settings;
    redis->run = redis_run_new();
    redis->sink.traits = SINK_TAKES_RUNS;
    if (!redis_address_parse(redis->settings->url, &redis->address, err))
        goto fail;
    replace(&redis->address.user, redis->settings->username);
    replace(&redis->address.password, redis->settings->password);
    if (redis->address.user && !redis->address.password) {
        error_set(err, ERROR_CONFIG, "username without a password; set password");
        goto fail;
    }
    redis->link = redis_link_new(&redis->address, redis->settings->tls_ca, redis->settings->timeout_us, err);
    if (redis->link)
        return &redis->sink;
fail:
    error_prefix(err, "sink %s", name);
    redis_free(redis);
    return NULL;
}

/* ---- what became of a delivery ---- */

static uint64_t command_end(const struct delivery *d)
{
    return (uint64_t)(uintptr_t)d->sink_data;
}

/* `why` is NULL with REACH_YES. */
static void probe_found(struct redis *redis, enum reach reach, const struct error *why)
{
    if (!redis->probing || redis->probe != REACH_PENDING)
        return;
    redis->probe = reach;
    if (why)
        redis->unreached = *why;
}

static void probe_answered(struct redis *redis, const redisReply *reply)
{
    struct error why;
    if (reply->type == REDIS_REPLY_STATUS) {
        probe_found(redis, REACH_YES, NULL);
        return;
    }
    bool is_error = reply->type == REDIS_REPLY_ERROR;
    error_set(&why, ERROR_UNREACHABLE, "%s: PING: %.*s", redis->address.text, is_error ? (int)reply->len : 0,
              is_error ? reply->str : "");
    probe_found(redis, REACH_NO, &why);
}

/* The connection is gone, or never came about. */
static void lose(struct redis *redis, instant_us now, const struct error *cause)
{
    struct delivery *d;
    uint64_t written = redis_link_written(redis->link);
    struct error unsent = *cause;
    if (unsent.kind == ERROR_PROTOCOL)
        unsent.kind = ERROR_UNREACHABLE;
    while ((d = delivery_queue_pop(&redis->sent)) != NULL) {
        bool all_sent = command_end(d) <= written;
        delivery_resolve(d, all_sent ? VERDICT_UNKNOWN : VERDICT_RETRY, all_sent ? cause : &unsent);
    }
    while ((d = delivery_queue_pop(&redis->waiting)) != NULL)
        delivery_resolve(d, VERDICT_RETRY, &unsent);
    redis_link_close(redis->link);
    redis->leaving = false;
    probe_found(redis, REACH_NO, &unsent);
    redis->probe_command = 0;
    if (redis->failures++ == 0)
        redis->rng.state ^= (uint64_t)now;
    redis->retry_at = now + backoff_delay_us(&reconnect, redis->failures, &redis->rng);
}

/* Nothing is under way, so nobody is hurt: the server closes idle connections, or is the wrong one. */
static void leave(struct redis *redis, instant_us now)
{
    redis_link_close(redis->link);
    redis->leaving = false;
    redis->probe_command = 0;
    redis->retry_at = now;
}

static void answer_error(struct redis *redis, struct delivery *d, struct span text)
{
    const struct redis_verdict *rule = redis_verdict_find(text);
    struct error cause;
    redis_verdict_explain(rule, text, &cause);
    error_prefix(&cause, "%s", redis->address.text);
    redis->leaving |= rule->reconnect;
    delivery_resolve(d, rule->verdict, &cause);
}

/* An error of the script itself: nothing was added, and it says nothing against any event. */
static void answer_run_error(struct redis *redis, size_t length, struct span text)
{
    const struct redis_verdict *rule = redis_verdict_find(text);
    struct error cause;
    redis_verdict_explain(rule, text, &cause);
    error_prefix(&cause, "%s: EVAL", redis->address.text);
    redis->leaving |= rule->reconnect;
    if (redis_run_is_forbidden(text)) {
        redis->sink.traits &= ~(unsigned)SINK_TAKES_RUNS; /* then one at a time */
        error_set(&cause, ERROR_ROUTE,
                  "%s: the server lets this user run no scripts, so events of one key go one by one; allow +eval to "
                  "have a busy key go faster",
                  redis->address.text);
    }
    while (length-- > 0)
        delivery_resolve(delivery_queue_pop(&redis->sent), VERDICT_RETRY, &cause);
}

static bool answer_run(struct redis *redis, const redisReply *reply, size_t length)
{
    size_t done;
    struct span error;
    if (reply->type == REDIS_REPLY_ERROR) {
        answer_run_error(redis, length, (struct span){reply->str, (size_t)reply->len});
        return true;
    }
    if (!redis_run_read(reply, length, &done, &error))
        return false;
    for (size_t i = 0; i < done; i++)
        delivery_resolve(delivery_queue_pop(&redis->sent), VERDICT_ACKED, NULL);
    if (done < length)
        answer_error(redis, delivery_queue_pop(&redis->sent), error);
    for (size_t i = done + 1; i < length; i++)
        delivery_fail(delivery_queue_pop(&redis->sent), VERDICT_RETRY, ERROR_REFUSED,
                      "%s: not added, as an event of its key before it was not", redis->address.text);
    return true;
}

static bool answer_single(struct redis *redis, const redisReply *reply)
{
    static const int wanted[] = {
        [REDIS_STREAM] = REDIS_REPLY_STRING, [REDIS_LIST] = REDIS_REPLY_INTEGER, [REDIS_PUBLISH] = REDIS_REPLY_INTEGER};
    if (reply->type == REDIS_REPLY_ERROR)
        answer_error(redis, delivery_queue_pop(&redis->sent), (struct span){reply->str, (size_t)reply->len});
    else if (reply->type == wanted[redis->settings->command])
        delivery_resolve(delivery_queue_pop(&redis->sent), VERDICT_ACKED, NULL);
    else
        return false;
    return true;
}

/* False: the reply fits no command of ours and the connection cannot be trusted any more. */
static bool answer(struct redis *redis, const redisReply *reply, struct error *err)
{
    redis->replies++;
    FAULT_POINT("redis.reply");
    if (redis->probing && redis->replies == redis->probe_command) {
        probe_answered(redis, reply);
        return true;
    }
    struct delivery *d = redis->sent.first;
    if (!d)
        return error_set(err, ERROR_PROTOCOL, "%s: protocol error: a reply that nobody asked for", redis->address.text);
    bool all_sent = command_end(d) <= redis_link_written(redis->link);
    size_t length = redis_run_length(d);
    if ((!all_sent && reply->type != REDIS_REPLY_ERROR) ||
        !(length > 1 ? answer_run(redis, reply, length) : answer_single(redis, reply)))
        return error_set(err, ERROR_PROTOCOL, "%s: protocol error: not a reply to this command", redis->address.text);
    /* It refused the command before it had all of it; what follows would be read as something else. */
    return all_sent ||
           error_set(err, ERROR_UNREACHABLE, "%s: connection given up after an early error", redis->address.text);
}

/* ---- the exchange ---- */

/* One command, for the first that waits and those joined to it. Returns where it ends. */
static uint64_t append_next(struct redis *redis, size_t length)
{
    enum redis_command_kind kind = (enum redis_command_kind)redis->settings->command;
    if (length > 1)
        return redis_run_append(redis->run, redis->link, kind, redis->settings->maxlen, redis->waiting.first, length);
    struct redis_command command;
    redis_command_build(&command, kind, redis->settings->maxlen, redis->waiting.first);
    return redis_link_append(redis->link, command.argc, command.argv, command.sizes);
}

static void fill(struct redis *redis)
{
    while (redis->waiting.first && !redis->leaving && redis_link_unwritten(redis->link) < BUFFER_BYTES) {
        size_t length = redis_run_length(redis->waiting.first);
        uint64_t end = append_next(redis, length);
        for (; length > 0; length--) {
            struct delivery *d = delivery_queue_pop(&redis->waiting);
            d->sink_data = (void *)(uintptr_t)end;
            delivery_queue_push(&redis->sent, d);
        }
        redis->commands++;
    }
}

static bool take_replies(struct redis *redis, struct error *err)
{
    for (;;) {
        redisReply *reply;
        if (!redis_link_reply(redis->link, &reply, err))
            return false;
        if (!reply)
            return true;
        bool good = answer(redis, reply, err);
        freeReplyObject(reply);
        if (!good)
            return false;
    }
}

static bool is_owed(const struct redis *redis)
{
    return redis->replies < redis->commands;
}

/* It has served, and there is neither an answer to come nor one that was too many. */
static bool is_even(const struct redis *redis)
{
    return redis->replies > 0 && redis->replies == redis->commands && !redis->sent.first;
}

static bool exchange(struct redis *redis, const struct pollset *ps, instant_us now, struct error *err)
{
    bool some = redis_link_readable(redis->link, ps);
    for (int round = 0; round < ROUNDS_MAX; round++) {
        if (some && (!redis_link_read(redis->link, now, &some, err) || !take_replies(redis, err)))
            return false;
        fill(redis);
        size_t before = redis_link_unwritten(redis->link);
        if (!redis_link_write(redis->link, now, err))
            return false;
        bool room = redis->waiting.first && !redis->leaving && redis_link_unwritten(redis->link) < before;
        if (!some && !room)
            break;
    }
    return redis_link_check(redis->link, is_owed(redis), now, err);
}

static void arrived(struct redis *redis)
{
    redis->failures = 0;
    redis->commands = redis->replies = 0;
    probe_found(redis, REACH_YES, NULL);
}

static bool advance(struct redis *redis, const struct pollset *ps, instant_us now, struct error *err)
{
    bool wanted = redis->waiting.first || (redis->probing && redis->probe == REACH_PENDING);
    if (redis_link_state(redis->link) == REDIS_LINK_DOWN) {
        if (!wanted || now < redis->retry_at)
            return true;
        if (!redis_link_open(redis->link, now, err))
            return false;
    }
    if (redis_link_state(redis->link) != REDIS_LINK_UP) {
        if (!redis_link_shake(redis->link, now, err))
            return false;
        if (redis_link_state(redis->link) != REDIS_LINK_UP)
            return true;
        arrived(redis);
    }
    return exchange(redis, ps, now, err);
}

static void redis_progress(struct sink *sink, const struct pollset *ps, instant_us now)
{
    struct redis *redis = (struct redis *)sink;
    struct error err;
    if (!advance(redis, ps, now, &err)) {
        /* A connection that is even may end: what waits goes over the next one. */
        if (redis_link_state(redis->link) == REDIS_LINK_UP && is_even(redis))
            leave(redis, now);
        else
            lose(redis, now, &err);
    } else if (redis->leaving && !is_owed(redis)) {
        leave(redis, now);
    }
}

static size_t redis_submit(struct sink *sink, struct delivery *const ds[], size_t n, instant_us now)
{
    (void)now;
    struct redis *redis = (struct redis *)sink;
    for (size_t i = 0; i < n; i++)
        delivery_queue_push(&redis->waiting, ds[i]);
    return n;
}

static void redis_prepare(struct sink *sink, struct pollset *ps)
{
    struct redis *redis = (struct redis *)sink;
    bool wanted = redis->waiting.first || (redis->probing && redis->probe == REACH_PENDING);
    enum redis_link_state state = redis_link_state(redis->link);
    if (state == REDIS_LINK_DOWN && wanted)
        pollset_deadline(ps, redis->retry_at);
    if (state == REDIS_LINK_UP && redis->waiting.first && !redis->leaving &&
        redis_link_unwritten(redis->link) < BUFFER_BYTES)
        pollset_deadline(ps, 0); /* submitted since the last turn */
    redis_link_prepare(redis->link, is_owed(redis), ps);
}

static enum reach redis_probe(struct sink *sink, struct span destination, instant_us now, struct error *err)
{
    (void)destination;
    struct redis *redis = (struct redis *)sink;
    if (redis->probing) {
        enum reach found = redis->probe;
        redis->probing = found == REACH_PENDING;
        if (found == REACH_NO)
            *err = redis->unreached;
        return found;
    }
    redis->probing = true;
    redis->probe = REACH_PENDING;
    redis->probe_command = 0;
    if (redis_link_state(redis->link) == REDIS_LINK_UP) {
        redis_link_append(redis->link, 1, (const char *[]){"PING"}, (const size_t[]){4});
        redis->probe_command = ++redis->commands;
    }
    redis->retry_at = instant_min(redis->retry_at, now);
    return REACH_PENDING;
}

/* Gives what is under way its chance to be answered. A connection that does not stand yet is not worth waiting for. */
static void redis_close(struct sink *sink)
{
    struct redis *redis = (struct redis *)sink;
    struct pollset *ps = pollset_new();
    struct error err;
    for (instant_us now = clock_now(), end = now + CLOSE_MAX_US;
         now < end && redis_link_state(redis->link) == REDIS_LINK_UP && sink->in_flight > 0; now = clock_now()) {
        pollset_clear(ps);
        redis_prepare(sink, ps);
        pollset_deadline(ps, instant_min(now + CLOSE_TURN_US, end));
        if (!pollset_wait(ps, now, &err))
            break;
        redis_progress(sink, ps, now);
    }
    pollset_free(ps);
    error_set(&err, ERROR_UNREACHABLE, "%s was closed before it answered", redis->address.text);
    struct delivery *d;
    while ((d = delivery_queue_pop(&redis->sent)) != NULL || (d = delivery_queue_pop(&redis->waiting)) != NULL)
        delivery_resolve(d, VERDICT_UNKNOWN, &err);
    redis_free(redis);
}

const struct sink_type sink_redis = {
    .name = "redis",
    .help = "adds to Redis streams or lists, or publishes to Redis channels",
    .settings = redis_setting_rows,
    .settings_size = sizeof(struct redis_settings),
    .needs_destination = true,
    .run = {.events_min = 8, .events_max = REDIS_RUN_EVENTS_MAX, .bytes_max = (size_t)256 * 1024},
    .max_in_flight = 1024,
    .open = redis_open,
    .submit = redis_submit,
    .prepare = redis_prepare,
    .progress = redis_progress,
    .close = redis_close,
    .probe = redis_probe,
    .exposed = redis_settings_exposed,
};
