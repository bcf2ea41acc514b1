#include "relay/base/clock.h"
#include "relay/commands/command.h"
#include "relay/commands/database.h"
#include "relay/commands/options.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

struct take_options {
    struct database database;
    const char *queue, *worker;
    int64_t count, lease_us;
};

static const struct setting count_setting = {"count", SETTING_COUNT, offsetof(struct take_options, count),
                                             "1",     .min = 1,      .max = 1000};
static const struct setting lease_setting = {"lease", SETTING_DURATION,    offsetof(struct take_options, lease_us),
                                             "1m",    .min = LEASE_MIN_US, .max = LEASE_MAX_US};

static const struct option_row option_rows[] = {
    {"count", 'n', "COUNT", "at most so many events (1)", .setting = &count_setting},
    {"lease", 'l', "DURATION", "for how long they are yours (1m)", .setting = &lease_setting},
    {"worker", 'w', "NAME", "who has them (the name of this host)", .offset = offsetof(struct take_options, worker)},
    {.name = NULL}};

static void take_words(void *values, char **words, int count, struct argp_state *state)
{
    struct take_options *given = values;
    options_take_queue(&given->queue, words, count, state);
}

static const struct options options = {
    .rows = option_rows,
    .database = true,
    .take_words = take_words,
    .words_doc = "QUEUE",
    .doc = "Takes events from a queue that outbox.queue_set() has made, for as long as the lease lasts, and prints "
           "each as a line of JSON; nothing when there is nothing to do."
           "\vSay what became of each by its token: `pgcourier done`, `fail`, `extend` or `release`.",
};

static bool take(PGconn *conn, const struct take_options *given, struct error *err)
{
    char count[24], lease[48], host[256] = "";
    snprintf(count, sizeof count, "%" PRId64, given->count);
    snprintf(lease, sizeof lease, "%" PRId64 " microseconds", given->lease_us);
    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0'; /* LCOV_EXCL_LINE */
    const char *params[] = {given->queue, count, given->worker ? given->worker : host, lease};
    PGresult *taken = query(conn, "take", sql_worker_take, 4, params, err);
    if (!taken)
        return privilege_explain(conn, 0, "{take}", err);
    for (int row = 0; row < PQntuples(taken); row++)
        puts(query_text(taken, row, 0));
    PQclear(taken);
    return true;
}

static int run(int argc, char **argv)
{
    struct take_options given = {0};
    struct error err = {0};
    options_parse(&options, argc, argv, &given);
    PGconn *conn = database_connect(&given.database, "take", &err);
    bool ok = conn && take(conn, &given, &err);
    PQfinish(conn);
    return ok ? EXIT_OK : command_fail(&err);
}

const struct command command_take = {"take", "take events from a queue, as JSON", run};
