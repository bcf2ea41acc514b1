#include "relay/base/clock.h"
#include "relay/base/statement.h"
#include "relay/commands/command.h"
#include "relay/commands/options.h"
#include "relay/commands/other_queue.h"
#include "relay/postgres/connect.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "relay/table/table.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POLL_US (100 * MS_US)

struct pause_options {
    const char *config_path, *queue, *key, *reason, *timeout;
    int64_t timeout_us; /* what `timeout` says */
};

static const struct setting timeout_setting = {"timeout", SETTING_DURATION, offsetof(struct pause_options, timeout_us),
                                               "30s", .max = 24 * HOUR_US};

static void read_timeout(const struct option_row *row, void *values, const char *text, struct argp_state *state)
{
    struct pause_options *given = values;
    options_read_setting(row, values, text, state);
    given->timeout = text;
}

/* drain has them all, pause all but the first, resume all but the first two. */
static const struct option_row option_rows[] = {
    {"timeout", 0, "DURATION", "how long to wait (30s)", .setting = &timeout_setting, .read = read_timeout},
    {"reason", 0, "TEXT", "for whoever finds it paused", .offset = offsetof(struct pause_options, reason)},
    {"config", 'c', "FILE", "the configuration", .offset = offsetof(struct pause_options, config_path)},
    {"key", 'k', "KEY", "only this key", .offset = offsetof(struct pause_options, key)},
    {.name = NULL}};

static void take_words(void *values, char **words, int count, struct argp_state *state)
{
    struct pause_options *given = values;
    options_take_queue(&given->queue, words, count, state);
}

static void check_options(void *values, struct argp_state *state)
{
    const struct pause_options *given = values;
    options_need_config(given->config_path, state);
}

/* What is paused, drained or resumed. */
struct subject {
    PGconn *conn;
    const struct pause_options *given;
    const struct queue_config *queue;
    struct queue_config *other; /* that, if the configuration does not have it */
    struct table *table;
    const char *key;  /* as outbox.parked spells it; NULL: the whole queue */
    const char *hash; /* second half of its lock */
    PGresult *spelt;  /* what holds these */
};

static void print_subject(const struct subject *subject)
{
    printf("%s%s%s", subject->queue->name, subject->key ? ", key " : "", subject->key ? subject->key : "");
}

static char *key_statement(const struct table *table, struct error *err)
{
    char *key =
        sql_render(table_key_of_text(table), (const struct sql_variable[]){{"text", "$1::text"}, {NULL, NULL}}, err);
    char *hash =
        key ? sql_render(table_lock_hash(table),
                         (const struct sql_variable[]){{"key", key}, {"id", "null::bigint"}, {NULL, NULL}}, err)
            : NULL;
    const struct sql_variable variables[] = {{"written", key}, {"hash", hash}, {NULL, NULL}};
    char *sql = hash ? sql_render(sql_pause_key, variables, err) : NULL;
    free(key);
    free(hash);
    return sql;
}

static bool spell_key(struct subject *subject, struct error *err)
{
    const struct table *table = subject->table;
    if (!table->key_sql)
        return error_set(err, ERROR_USAGE, "queue %s: %s has no key column", subject->queue->name, table->plain_name);
    char *sql = key_statement(table, err);
    subject->spelt = sql ? query(subject->conn, table->plain_name, sql, 1, &subject->given->key, err) : NULL;
    free(sql);
    if (!subject->spelt)
        return false;
    subject->key = query_text(subject->spelt, 0, 0);
    subject->hash = query_text(subject->spelt, 0, 1);
    return subject->key ||
           error_set(err, ERROR_USAGE, "queue %s: \"%s\" is no key of %s: write it as the column %s shows it",
                     subject->queue->name, subject->given->key, table->plain_name, table->key_sql);
}

static bool call(const struct subject *subject, const char *sql, int count, const char *works, bool *ret,
                 struct error *err)
{
    const char *params[] = {subject->queue->name, subject->key, subject->given->reason ? subject->given->reason : ""};
    PGresult *result = query(subject->conn, subject->queue->name, sql, count, params, err);
    if (!result)
        return privilege_explain(subject->conn, 0, works, err);
    *ret = query_bool(result, 0, 0);
    PQclear(result);
    return true;
}

static bool pause_subject(const struct subject *subject, struct error *err)
{
    bool begun = false;
    if (!call(subject, sql_pause_begin, 3, "{pause}", &begun, err))
        return false;
    print_subject(subject);
    puts(begun ? " is paused" : " was paused already");
    return true;
}

static bool resume_subject(const struct subject *subject, struct error *err)
{
    bool ended = false;
    if (!call(subject, sql_pause_end, 2, "{resume}", &ended, err))
        return false;
    print_subject(subject);
    puts(ended ? " goes on" : " was not paused");
    return true;
}

static bool add_count(const struct subject *subject, const char *what, const char *sql, const char *const params[2],
                      int64_t *ret, struct error *err)
{
    PGresult *result = query(subject->conn, what, sql, 2, params, err);
    if (!result)
        return privilege_explain(subject->conn, 0, "{drain}", err);
    *ret += query_int(result, 0, 0);
    PQclear(result);
    return true;
}

/* Of a claim that takes its locks from now on the events are read after the pause, and it sends none of them: see
 * sql/claim/per_key_read.sql. A worker's take() looks for the pause when it has its locks, too. So what is found here
 * is all there is. */
static bool count_in_flight(const struct subject *subject, int64_t *ret, struct error *err)
{
    char class[16];
    snprintf(class, sizeof class, "%d", (int)subject->table->lock_class);
    const char *locks[2] = {class, subject->hash}, *leases[2] = {subject->queue->name, subject->key};
    *ret = 0;
    return add_count(subject, "pg_locks", sql_pause_locks, locks, ret, err) &&
           add_count(subject, "outbox.parked", sql_pause_leases, leases, ret, err);
}

static void sleep_us(int64_t us)
{
    nanosleep(&(const struct timespec){.tv_sec = us / SECOND_US, .tv_nsec = us % SECOND_US * 1000}, NULL);
}

static bool drain_subject(const struct subject *subject, struct error *err)
{
    instant_us by = clock_now() + subject->given->timeout_us;
    bool begun;
    int64_t held;
    if (!call(subject, sql_pause_begin, 3, "{drain}", &begun, err))
        return false;
    for (; count_in_flight(subject, &held, err); sleep_us(POLL_US)) {
        if (held == 0) {
            print_subject(subject);
            puts(" is paused and nothing of it is on its way");
            return true;
        }
        if (clock_now() >= by)
            return error_set(err, ERROR_TIMEOUT,
                             "drain: after %s a relay or worker still holds %" PRId64
                             " key%s of %s, or of another queue over its table; it stays paused",
                             subject->given->timeout, held, held == 1 ? "" : "s", subject->queue->name);
    }
    return false;
}

static bool find_queue(struct subject *subject, const struct config *config, struct error *err)
{
    const char *name = subject->given->queue;
    struct error not_there;
    subject->queue = config_queue(config, name, &not_there);
    if (!subject->queue && other_queue_check(subject->conn, config, name, err))
        subject->queue = subject->other = other_queue_read(subject->conn, name, err);
    return subject->queue;
}

static const struct verb {
    const char *name;
    bool (*act)(const struct subject *subject, struct error *err);
    const struct option_row *rows;
    const char *doc;
} verbs[] = {
    {"pause", pause_subject, &option_rows[1],
     "Lets relays and workers claim nothing more of a queue, or of one key of it, until `pgcourier resume`. What is on "
     "its way is finished. Obeyed within a second by every relay, and by those that are started later."},
    {"resume", resume_subject, &option_rows[2],
     "Lets a queue, or one key of it, go on that `pgcourier pause` or `drain` has stopped. A key that was closed after "
     "failures stays closed: see `pgcourier dead retry`."},
    {"drain", drain_subject, option_rows,
     "Pauses a queue, or one key of it, and waits until nobody has anything of it on its way. Ends with 75 when that "
     "takes longer than the timeout. It stays paused in both cases."},
};

static const struct verb *verb_of(const char *name)
{
    const struct verb *verb = verbs;
    while (strcmp(verb->name, name) != 0)
        verb++;
    return verb;
}

static int run(int argc, char **argv)
{
    const struct verb *verb = verb_of(argv[0] + sizeof "pgcourier");
    const struct options options = {
        .rows = verb->rows, .take_words = take_words, .check = check_options, .words_doc = "QUEUE", .doc = verb->doc};
    struct pause_options given = {.timeout = timeout_setting.fallback};
    struct error err = {0};
    options_parse(&options, argc, argv, &given);
    struct config *config = config_load(given.config_path, &err);
    struct subject subject = {.given = &given};
    subject.conn = config ? command_connect(config->database, verb->name, &err) : NULL;
    bool found = subject.conn && find_queue(&subject, config, &err);
    subject.table = found ? table_inspect(subject.conn, subject.queue, &err) : NULL;
    bool ok = subject.table && (!given.key || spell_key(&subject, &err)) && verb->act(&subject, &err);
    PQclear(subject.spelt);
    table_free(subject.table);
    other_queue_free(subject.other);
    PQfinish(subject.conn);
    config_free(config);
    return ok ? EXIT_OK : command_fail(&err);
}

const struct command command_pause = {"pause", "let a queue or a key stand still", run};
const struct command command_resume = {"resume", "let it go on", run};
const struct command command_drain = {"drain", "pause, and wait until nothing is on its way", run};
