#include "relay/commands/argument.h"
#include "relay/commands/command.h"
#include "relay/commands/database.h"
#include "relay/commands/options.h"
#include "relay/commands/other_queue.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

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

static void take_words(void *values, char **words, int count, struct argp_state *state)
{
    struct schedule_options *given = values;
    for (int i = 0; i < count; i++)
        take_word(given, words[i], state);
    if (!given->verb || (given->verb->named && !given->name))
        argp_error(state, "write list, set NAME or drop NAME");
}

static const struct option_row option_rows[] = {
    {"queue", 'q', "QUEUE", "the queue of outbox.queue that its events go to; list, drop: only of this queue",
     .offset = offsetof(struct schedule_options, queue)},
    {"every", 0, "INTERVAL", "as PostgreSQL writes it: '5 minutes'",
     .offset = offsetof(struct schedule_options, every)},
    {"cron", 0, "EXPRESSION", "minute, hour, day, month, day of the week: '30 6 * * mon-fri'",
     .offset = offsetof(struct schedule_options, cron)},
    {"zone", 0, "ZONE", "the time zone of --cron (UTC)", .offset = offsetof(struct schedule_options, zone)},
    {"missed", 0, "skip|once|all", "what becomes of runs that nobody was there for (once)",
     .offset = offsetof(struct schedule_options, missed)},
    {"key", 'k', "KEY", "the ordering key of its events", .offset = offsetof(struct schedule_options, key)},
    {"type", 't', "TYPE", "their type", .offset = offsetof(struct schedule_options, type)},
    {"payload", 0, "JSON", "their payload", .offset = offsetof(struct schedule_options, payload)},
    {.name = NULL}};

static const struct options options = {
    .rows = option_rows,
    .database = true,
    .take_words = take_words,
    .words_doc = "list | set NAME | drop NAME",
    .doc =
        "Lists, makes or drops what is inserted by the clock: events of a queue, every so often or at the times of a "
        "cron expression. Whoever sets or drops one is the owner of the schema outbox.",
};

static int run(int argc, char **argv)
{
    struct schedule_options given = {.zone = "UTC", .missed = "once"};
    struct error err = {0};
    options_parse(&options, argc, argv, &given);
    PGconn *conn = database_connect(&given.database, "schedule", &err);
    bool ok = conn && given.verb->act(conn, &given, &err);
    PQfinish(conn);
    return ok ? EXIT_OK : command_fail(&err);
}

const struct command command_schedule = {"schedule", "insert events by the clock", run};
