/* What became of events that `pgcourier take`, or any worker, has taken. */
#include "relay/base/clock.h"
#include "relay/base/setting.h"
#include "relay/commands/argument.h"
#include "relay/commands/command.h"
#include "relay/commands/database.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>

struct verdict_options {
    struct database database;
    char **tokens;
    int token_count;
    const char *text; /* why it failed, or what goes on; NULL: not given */
    bool fatal;
    int64_t lease_us; /* 0: not given */
};

static const struct setting lease_setting = {.name = "lease",
                                             .kind = SETTING_DURATION,
                                             .offset = offsetof(struct verdict_options, lease_us),
                                             .min = LEASE_MIN_US,
                                             .max = LEASE_MAX_US};

static const struct argp_option done_options[] = {
    {"response", 'r', "TEXT", 0, "what goes on to the next queue as payload, where its owner wants that", 0}, {0}};
static const struct argp_option fail_options[] = {
    {"error", 'e', "TEXT", 0, "what went wrong", 0}, {"fatal", 'f', NULL, 0, "do not try it again", 0}, {0}};
static const struct argp_option extend_options[] = {
    {"lease", 'l', "DURATION", 0, "from now on (without it, as long as it was)", 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct verdict_options *given = state->input;
    struct error err;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &given->database;
        return 0;
    case 'e':
    case 'r':
        given->text = arg;
        return 0;
    case 'f':
        given->fatal = true;
        return 0;
    case 'l':
        if (!setting_parse(&lease_setting, arg, given, &err))
            argp_error(state, "--lease: %s", err.text);
        return 0;
    case ARGP_KEY_ARGS:
        given->tokens = state->argv + state->next;
        given->token_count = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "give the token that `pgcourier take` has printed");
        return 0; /* LCOV_EXCL_LINE */
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&database_argp, 0, NULL, 0}, {0}};

/* One of the four, for one token; its statement has `count` parameters. */
struct verdict {
    const char *name, *sql, *works;
    int count;
};

static bool end_one(PGconn *conn, const struct verdict *verdict, const struct verdict_options *given, const char *token,
                    struct error *err)
{
    char lease[48];
    snprintf(lease, sizeof lease, "%" PRId64 " microseconds", given->lease_us);
    const char *second = verdict->sql == sql_worker_extend ? (given->lease_us ? lease : NULL) : given->text;
    const char *params[] = {token, second, given->fatal ? "true" : "false"};
    PGresult *result = query(conn, verdict->name, verdict->sql, verdict->count, params, err);
    if (!result) {
        privilege_explain(conn, 0, verdict->works, err);
        return false;
    }
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

/* Goes on after a token that came too late: the others' verdicts are as good as before. */
static int run_verdict(int argc, char **argv, const struct argp *argp, const struct verdict *verdict)
{
    struct verdict_options given = {0};
    struct error err = {0};
    argp_parse(argp, argc, argv, 0, NULL, &given);
    PGconn *conn = database_connect(&given.database, verdict->name, &err);
    bool known = conn && check_tokens(conn, verdict, &given, &err);
    int code = known ? EXIT_OK : command_fail(&err);
    for (int i = 0; known && i < given.token_count && (code == EXIT_OK || err.kind == ERROR_CONFLICT); i++)
        if (!end_one(conn, verdict, &given, given.tokens[i], &err))
            code = command_fail(&err);
    PQfinish(conn);
    return code;
}

static int run_done(int argc, char **argv)
{
    static const struct argp argp = {
        .options = done_options,
        .parser = parse,
        .args_doc = "TOKEN...",
        .doc = "Ends events that were taken and are done: they are deleted, or archived, and go on. Ends with 75 when "
               "one came "
               "too late.",
        .children = children,
    };
    return run_verdict(argc, argv, &argp, &(const struct verdict){"done", sql_worker_done, "{done}", 2});
}

static int run_fail(int argc, char **argv)
{
    static const struct argp argp = {
        .options = fail_options,
        .parser = parse,
        .args_doc = "TOKEN...",
        .doc = "Gives events back that could not be done: they come again after a wait, until there were as many "
               "attempts as "
               "their queue allows. Ends with 75 when one came too late.",
        .children = children,
    };
    return run_verdict(argc, argv, &argp, &(const struct verdict){"fail", sql_worker_fail, "{fail}", 3});
}

static int run_extend(int argc, char **argv)
{
    static const struct argp argp = {
        .options = extend_options,
        .parser = parse,
        .args_doc = "TOKEN...",
        .doc = "Begins the lease of events anew. Ends with 75 when one came too late.",
        .children = children,
    };
    return run_verdict(argc, argv, &argp, &(const struct verdict){"extend", sql_worker_extend, "{extend}", 2});
}

static int run_release(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "TOKEN...",
        .doc = "Gives events back untouched; no attempt is counted. Ends with 75 when one came too late.",
        .children = children,
    };
    return run_verdict(argc, argv, &argp, &(const struct verdict){"release", sql_worker_release, "{release}", 1});
}

const struct command command_done = {"done", "end what was taken and is done", run_done};
const struct command command_fail_event = {"fail", "give back what could not be done", run_fail};
const struct command command_extend = {"extend", "begin a lease anew", run_extend};
const struct command command_release = {"release", "give back what was taken, untouched", run_release};
