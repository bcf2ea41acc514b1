#include "relay/commands/argument.h"
#include "relay/commands/command.h"
#include "relay/commands/database.h"
#include "relay/commands/other_queue.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <argp.h>
#include <stdio.h>
#include <string.h>

struct schedule_options {
    struct database database;
    const struct verb *verb;
    const char *name, *queue, *every, *cron, *zone, *key, *type, *payload, *missed;
};

struct verb {
    const char *name;
    bool named; /* its argument is the name of a schedule */
    bool (*act)(PGconn *conn, const struct schedule_options *given, struct error *err);
};

enum { OPTION_EVERY = 0x100, OPTION_CRON, OPTION_ZONE, OPTION_MISSED, OPTION_PAYLOAD };

static const struct argp_option options[] = {
    {"queue", 'q', "QUEUE", 0, "the queue of outbox.queue that its events go to; list, drop: only of this queue", 0},
    {"every", OPTION_EVERY, "INTERVAL", 0, "as PostgreSQL writes it: '5 minutes'", 0},
    {"cron", OPTION_CRON, "EXPRESSION", 0, "minute, hour, day, month, day of the week: '30 6 * * mon-fri'", 0},
    {"zone", OPTION_ZONE, "ZONE", 0, "the time zone of --cron (UTC)", 0},
    {"missed", OPTION_MISSED, "skip|once|all", 0, "what becomes of runs that nobody was there for (once)", 0},
    {"key", 'k', "KEY", 0, "the ordering key of its events", 0},
    {"type", 't', "TYPE", 0, "their type", 0},
    {"payload", OPTION_PAYLOAD, "JSON", 0, "their payload", 0},
    {0}};

/* `what`: the function that says by its name what it does not find, see relay/postgres/query.h. */
static PGresult *ask(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                     struct error *err)
{
    PGresult *result = query(conn, what, sql, count, params, err);
    if (!result)
        privilege_explain(conn, 0, "{schedule}", err);
    return result;
}

static bool list(PGconn *conn, const struct schedule_options *given, struct error *err)
{
    PGresult *result = ask(conn, "schedule", sql_schedule_list, 1, &given->queue, err);
    if (!result)
        return false;
    if (PQntuples(result) == 0 && given->queue && !other_queue_check(conn, NULL, given->queue, err)) {
        PQclear(result);
        return false;
    }
    static const char line[] = "%-20s %-12s %-32s %-6s %-20s %8s  %s\n";
    if (PQntuples(result) > 0)
        printf(line, "schedule", "queue", "runs", "missed", "next", "so far", "last error");
    for (int row = 0; row < PQntuples(result); row++)
        printf(line, query_text(result, row, 0), query_text(result, row, 1), query_text(result, row, 2),
               query_text(result, row, 3), query_text(result, row, 4), query_text(result, row, 5),
               query_text(result, row, 6));
    PQclear(result);
    return true;
}

static bool set(PGconn *conn, const struct schedule_options *given, struct error *err)
{
    const char *params[] = {given->name, given->queue, given->every,   given->cron,  given->zone,
                            given->key,  given->type,  given->payload, given->missed};
    const struct argument arguments[] = {
        {"--every", ARGUMENT_INTERVAL, given->every}, {"--payload", ARGUMENT_JSON, given->payload}, {.name = NULL}};
    if (!argument_check(conn, "schedule", arguments, err))
        return false;
    PGresult *result = ask(conn, "schedule_set", sql_schedule_set, sizeof params / sizeof params[0], params, err);
    if (!result)
        return false;
    printf("%s runs next at %s\n", given->name, query_text(result, 0, 0));
    PQclear(result);
    return true;
}

static bool drop(PGconn *conn, const struct schedule_options *given, struct error *err)
{
    const char *params[] = {given->name, given->queue};
    PGresult *result = ask(conn, "schedule", sql_schedule_drop, 2, params, err);
    if (!result)
        return false;
    bool dropped = PQntuples(result) == 1;
    PQclear(result);
    if (!dropped)
        return error_set(err, ERROR_USAGE, "there is no schedule \"%s\"%s%s; see `pgcourier schedule list`",
                         given->name, given->queue ? " of queue " : "", given->queue ? given->queue : "");
    printf("%s is no more\n", given->name);
    return true;
}

static const struct verb verbs[] = {{"list", false, list}, {"set", true, set}, {"drop", true, drop}};

static void take_word(struct schedule_options *given, char *word, const struct argp_state *state)
{
    if (given->verb && given->verb->named && !given->name) {
        given->name = word;
        return;
    }
    for (size_t i = 0; !given->verb && i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(verbs[i].name, word) == 0) {
            given->verb = &verbs[i];
            return;
        }
    argp_error(state, "\"%s\": write list, set NAME or drop NAME", word);
}

static const char **place_of(struct schedule_options *given, int key)
{
    switch (key) {
    case 'q':
        return &given->queue;
    case OPTION_EVERY:
        return &given->every;
    case OPTION_CRON:
        return &given->cron;
    case OPTION_ZONE:
        return &given->zone;
    case OPTION_MISSED:
        return &given->missed;
    case 'k':
        return &given->key;
    case 't':
        return &given->type;
    case OPTION_PAYLOAD:
        return &given->payload;
    default:
        return NULL;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct schedule_options *given = state->input;
    const char **place = place_of(given, key);
    if (place) {
        *place = arg;
        return 0;
    }
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &given->database;
        return 0;
    case ARGP_KEY_ARG:
        take_word(given, arg, state);
        return 0;
    case ARGP_KEY_END:
        if (!given->verb || (given->verb->named && !given->name))
            argp_error(state, "write list, set NAME or drop NAME");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&database_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "list | set NAME | drop NAME",
    .doc =
        "Lists, makes or drops what is inserted by the clock: events of a queue, every so often or at the times of a "
        "cron expression. Whoever sets or drops one is the owner of the schema outbox.",
    .children = children,
};

static int run(int argc, char **argv)
{
    struct schedule_options given = {.zone = "UTC", .missed = "once"};
    struct error err = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &given);
    PGconn *conn = database_connect(&given.database, "schedule", &err);
    bool ok = conn && given.verb->act(conn, &given, &err);
    PQfinish(conn);
    return ok ? EXIT_OK : command_fail(&err);
}

const struct command command_schedule = {"schedule", "insert events by the clock", run};
