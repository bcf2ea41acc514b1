#include "relay/base/clock.h"
#include "relay/base/setting.h"
#include "relay/commands/command.h"
#include "relay/commands/database.h"
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

static const struct setting count_setting = {.name = "count",
                                             .kind = SETTING_COUNT,
                                             .offset = offsetof(struct take_options, count),
                                             .fallback = "1",
                                             .min = 1,
                                             .max = 1000};
static const struct setting lease_setting = {.name = "lease",
                                             .kind = SETTING_DURATION,
                                             .offset = offsetof(struct take_options, lease_us),
                                             .fallback = "1m",
                                             .min = LEASE_MIN_US,
                                             .max = LEASE_MAX_US};

static const struct argp_option options[] = {{"count", 'n', "COUNT", 0, "at most so many events (1)", 0},
                                             {"lease", 'l', "DURATION", 0, "for how long they are yours (1m)", 0},
                                             {"worker", 'w', "NAME", 0, "who has them (the name of this host)", 0},
                                             {0}};

static void parse_setting(const struct setting *setting, const char *arg, struct argp_state *state)
{
    struct error err;
    if (!setting_parse(setting, arg, state->input, &err))
        argp_error(state, "--%s: %s", setting->name, err.text);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct take_options *given = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &given->database;
        return 0;
    case 'n':
        parse_setting(&count_setting, arg, state);
        return 0;
    case 'l':
        parse_setting(&lease_setting, arg, state);
        return 0;
    case 'w':
        given->worker = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (given->queue)
            argp_error(state, "one queue at a time");
        given->queue = arg;
        return 0;
    case ARGP_KEY_END:
        if (!given->queue)
            argp_error(state, "say which queue");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&database_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "QUEUE",
    .doc = "Takes events from a queue that outbox.queue_set() has made, for as long as the lease lasts, and prints "
           "each as a "
           "line of JSON; nothing when there is nothing to do."
           "\vSay what became of each by its token: `pgcourier done`, `fail`, `extend` or `release`.",
    .children = children,
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
    if (!taken) {
        privilege_explain(conn, 0, "{take}", err);
        return false;
    }
    for (int row = 0; row < PQntuples(taken); row++)
        puts(query_text(taken, row, 0));
    PQclear(taken);
    return true;
}

static int run(int argc, char **argv)
{
    struct take_options given = {0};
    struct error err = {0};
    setting_defaults((const struct setting[]){count_setting, lease_setting, {.name = NULL}}, &given);
    argp_parse(&argp, argc, argv, 0, NULL, &given);
    PGconn *conn = database_connect(&given.database, "take", &err);
    bool ok = conn && take(conn, &given, &err);
    PQfinish(conn);
    return ok ? EXIT_OK : command_fail(&err);
}

const struct command command_take = {"take", "take events from a queue, as JSON", run};
