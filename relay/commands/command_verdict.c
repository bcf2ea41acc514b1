/* What became of events that `pgcourier take`, or any worker, has taken. */
#include "relay/base/clock.h"
#include "relay/commands/argument.h"
#include "relay/commands/command.h"
#include "relay/commands/database.h"
#include "relay/commands/options.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct verdict_options {
    struct database database;
    char **tokens;
    int token_count;
    const char *text; /* why it failed, or what goes on; NULL: not given */
    bool fatal;
    int64_t lease_us; /* 0: not given */
};

static const struct setting lease_setting = {"lease", SETTING_DURATION, offsetof(struct verdict_options, lease_us),
                                             .min = LEASE_MIN_US, .max = LEASE_MAX_US};

static const struct option_row done_rows[] = {{"response", 'r', "TEXT",
                                               "what goes on to the next queue as payload, where its owner wants that",
                                               .offset = offsetof(struct verdict_options, text)},
                                              {.name = NULL}};
static const struct option_row fail_rows[] = {
    {"error", 'e', "TEXT", "what went wrong", .offset = offsetof(struct verdict_options, text)},
    {"fatal", 'f', NULL, "do not try it again", .offset = offsetof(struct verdict_options, fatal)},
    {.name = NULL}};
static const struct option_row extend_rows[] = {
    {"lease", 'l', "DURATION", "from now on (without it, as long as it was)", .setting = &lease_setting},
    {.name = NULL}};

static const struct option_row release_rows[] = {{.name = NULL}};

static void take_tokens(void *values, char **words, int count, struct argp_state *state)
{
    struct verdict_options *given = values;
    if (count == 0)
        argp_error(state, "give the token that `pgcourier take` has printed");
    given->tokens = words;
    given->token_count = count;
}

/* One of the four, for one token; its statement has `count` parameters. */
static const struct verdict {
    const char *name, *sql, *works;
    int count;
    const struct option_row *rows;
    const char *doc;
} verdicts[] = {
    {"done", sql_worker_done, "{done}", 2, done_rows,
     "Ends events that were taken and are done: they are deleted, or archived, and go on. Ends with 75 when one came "
     "too late."},
    {"fail", sql_worker_fail, "{fail}", 3, fail_rows,
     "Gives events back that could not be done: they come again after a wait, until there were as many attempts as "
     "their queue allows. Ends with 75 when one came too late."},
    {"extend", sql_worker_extend, "{extend}", 2, extend_rows,
     "Begins the lease of events anew. Ends with 75 when one came too late."},
    {"release", sql_worker_release, "{release}", 1, release_rows,
     "Gives events back untouched; no attempt is counted. Ends with 75 when one came too late."},
};

static bool end_one(PGconn *conn, const struct verdict *verdict, const struct verdict_options *given, const char *token,
                    struct error *err)
{
    char lease[48];
    snprintf(lease, sizeof lease, "%" PRId64 " microseconds", given->lease_us);
    const char *second = verdict->sql == sql_worker_extend ? (given->lease_us ? lease : NULL) : given->text;
    const char *params[] = {token, second, given->fatal ? "true" : "false"};
    PGresult *result = query(conn, verdict->name, verdict->sql, verdict->count, params, err);
    if (!result)
        return privilege_explain(conn, 0, verdict->works, err);
    bool counted = query_bool(result, 0, 0);
    PQclear(result);
    return counted || error_set(err, ERROR_CONFLICT, "%s: %s came too late: its lease was over, and nothing is changed",
                                verdict->name, token);
}

/* All of them, before the first is ended: with a slip in one of them it is better to say nothing of any. */
static bool check_tokens(PGconn *conn, const struct verdict *verdict, const struct verdict_options *given,
                         struct error *err)
{
    for (int i = 0; i < given->token_count; i++)
        if (!argument_check(conn, verdict->name,
                            (const struct argument[]){{"token", ARGUMENT_UUID, given->tokens[i]}, {.name = NULL}}, err))
            return false;
    return true;
}

static const struct verdict *verdict_of(const char *name)
{
    const struct verdict *verdict = verdicts;
    while (strcmp(verdict->name, name) != 0)
        verdict++;
    return verdict;
}

/* Goes on after a token that came too late: the others' verdicts are as good as before. */
static int run(int argc, char **argv)
{
    const struct verdict *verdict = verdict_of(argv[0] + sizeof "pgcourier");
    const struct options options = {.rows = verdict->rows,
                                    .database = true,
                                    .take_words = take_tokens,
                                    .words_doc = "TOKEN...",
                                    .doc = verdict->doc};
    struct verdict_options given = {0};
    struct error err = {0};
    options_parse(&options, argc, argv, &given);
    PGconn *conn = database_connect(&given.database, verdict->name, &err);
    bool known = conn && check_tokens(conn, verdict, &given, &err);
    int code = known ? EXIT_OK : command_fail(&err);
    for (int i = 0; known && i < given.token_count && (code == EXIT_OK || err.kind == ERROR_CONFLICT); i++)
        if (!end_one(conn, verdict, &given, given.tokens[i], &err))
            code = command_fail(&err);
    PQfinish(conn);
    return code;
}

const struct command command_done = {"done", "end what was taken and is done", run};
const struct command command_fail_event = {"fail", "give back what could not be done", run};
const struct command command_extend = {"extend", "begin a lease anew", run};
const struct command command_release = {"release", "give back what was taken, untouched", run};
