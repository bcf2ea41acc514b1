#include "relay/base/suggest.h"
#include "relay/base/utf8.h"
#include "relay/commands/argument.h"
#include "relay/commands/command.h"
#include "relay/commands/dead.h"
#include "relay/commands/options.h"
#include "relay/commands/other_queue.h"
#include "relay/postgres/connect.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 80 /* of what stays as it is */

struct dead_options {
    const char *verb, *config_path;
    struct dead_filter filter;
    struct column_moves moves;
    int64_t limit;
    bool all, json;
    bool partly_done; /* the answer: some needs a remedy first */
};

static const struct setting limit_setting = {"limit", SETTING_COUNT, offsetof(struct dead_options, limit),
                                             "1000",  .min = 1,      .max = INT32_MAX};

static bool is_named(const struct dead_options *given)
{
    return given->filter.id || given->filter.key || given->filter.error;
}

static void check_options(void *values, struct argp_state *state)
{
    const struct dead_options *given = values;
    if (!given->verb)
        argp_error(state, "say what to do: list, show, retry or drop");
    options_need_config(given->config_path, state);
    bool acts = given->verb && (strcmp(given->verb, "retry") == 0 || strcmp(given->verb, "drop") == 0);
    if (acts && !given->all && !is_named(given))
        argp_error(state, "%s: give --key, --id, --error or --all", given->verb);
    if (given->moves.from && given->verb && strcmp(given->verb, "retry") != 0)
        argp_error(state, "--column is for retry");
}

static void take_words(void *values, char **words, int count, struct argp_state *state)
{
    struct dead_options *given = values;
    if (count > 1)
        argp_error(state, "one of list, show, retry and drop at a time");
    given->verb = words[0];
}

static void read_id(const struct option_row *row, void *values, const char *text, struct argp_state *state)
{
    struct dead_options *given = values;
    if (!argument_is_id(text, strlen(text)))
        argp_error(state, "--%s \"%s\": write a whole number of 64 bits", row->name, text);
    given->filter.id = text;
}

static void read_column(const struct option_row *row, void *values, const char *text, struct argp_state *state)
{
    struct dead_options *given = values;
    if (!column_moves_add(&given->moves, text))
        argp_error(state,
                   "--%s \"%s\": write OLD=NEW, OLD= for values that are to be lost, or =NEW for none in column NEW",
                   row->name, text);
}

static const struct option_row option_rows[] = {
    {"config", 'c', "FILE", "the configuration", .offset = offsetof(struct dead_options, config_path)},
    {"queue", 'q', "NAME", "only this queue", .offset = offsetof(struct dead_options, filter.queue)},
    {"key", 'k', "KEY", "only this key", .offset = offsetof(struct dead_options, filter.key)},
    {"id", 'i', "ID", "only the event with this id", .read = read_id},
    {"error", 'e', "PATTERN", "only what failed with this text; % stands for any part of it",
     .offset = offsetof(struct dead_options, filter.error)},
    {"all", 'a', NULL, "retry, drop: everything that the others leave", .offset = offsetof(struct dead_options, all)},
    {"column", 0, "OLD=[NEW]",
     "retry: what is in column OLD, which the table has no more or generates now, goes into NEW, or nowhere",
     .read = read_column},
    {"limit", 'n', "COUNT", "list, show: at most so many of each kind (1000)", .setting = &limit_setting},
    {"json", 'j', NULL, "list, show: a JSON array, for programs", .offset = offsetof(struct dead_options, json)},
    {.name = NULL}};

static const struct options options = {
    .rows = option_rows,
    .take_words = take_words,
    .check = check_options,
    .words_doc = "list|show|retry|drop",
    .doc = "Dead letters (events taken out of their queue after the last attempt) and closed keys (on_exhausted: park)."
           "\vlist prints them, show prints dead letters whole, payload included.\n"
           "retry puts dead letters back into their table under the ids they had, so they arrive in order among "
           "themselves, but after later events that went on without them; and it opens closed keys, whose order is "
           "whole.\n"
           "drop forgets dead letters; of a closed key it deletes the event that failed, and the key goes on.\n"
           "What cannot be put back, or dropped, stays as it is: a line on standard error says why and what to do, the "
           "rest goes on, and the exit code is 65.\n"
           "show, retry and drop end with 64 when there is nothing of the --id, --key or --error that was given.\n"
           "retry needs INSERT on the queue's table, which outbox_relay does not have.",
};

/* The columns of sql/commands/dead_list.sql; dead_show.sql has more behind them. */
enum {
    DEAD_QUEUE,
    DEAD_ID,
    DEAD_KEY,
    DEAD_TYPE,
    DEAD_ATTEMPTS,
    DEAD_AT,
    DEAD_REASON,
    DEAD_JSON,
    DEAD_CREATED_AT,
    DEAD_TABLE,
    DEAD_ROW
};

static const char *or_dash(const PGresult *rows, int row, int column)
{
    const char *text = query_text(rows, row, column);
    return text ? text : "-";
}

static void print_row(const PGresult *rows, int row, const char *state)
{
    printf("%-7s %-16s %12s %-20s %-16s %4s %s %s\n", state, query_text(rows, row, DEAD_QUEUE),
           query_text(rows, row, DEAD_ID), or_dash(rows, row, DEAD_KEY), or_dash(rows, row, DEAD_TYPE),
           query_text(rows, row, DEAD_ATTEMPTS), query_text(rows, row, DEAD_AT), query_text(rows, row, DEAD_REASON));
}

static void print_full(const PGresult *rows, int row)
{
    printf("queue       %s\nid          %s\nkey         %s\ntype        %s\ntable       %s\ncreated at  %s\n"
           "died at     %s\nattempts    %s\nreason      %s\nrow         %s\n\n",
           query_text(rows, row, DEAD_QUEUE), query_text(rows, row, DEAD_ID), or_dash(rows, row, DEAD_KEY),
           or_dash(rows, row, DEAD_TYPE), query_text(rows, row, DEAD_TABLE), or_dash(rows, row, DEAD_CREATED_AT),
           query_text(rows, row, DEAD_AT), query_text(rows, row, DEAD_ATTEMPTS), query_text(rows, row, DEAD_REASON),
           query_text(rows, row, DEAD_ROW));
}

/* PostgreSQL made the JSON, so that a row goes out as it was stored. */
static void print_json(const PGresult *rows, size_t *printed)
{
    for (int row = 0; row < PQntuples(rows); row++)
        printf("%s%s", (*printed)++ ? ",\n" : "", query_text(rows, row, DEAD_JSON));
}

static PGresult *find(PGconn *conn, const char *sql, const struct dead_options *given, struct error *err)
{
    const struct dead_filter *filter = &given->filter;
    char limit[24];
    snprintf(limit, sizeof limit, "%" PRId64, given->limit);
    const char *params[] = {filter->queue, filter->key, filter->id, filter->error, limit};
    PGresult *found = query(conn, "dead letters", sql, 5, params, err);
    char work[16];
    snprintf(work, sizeof work, "{dead %s}", given->verb);
    if (!found)
        privilege_explain(conn, 0, work, err);
    return found;
}

static bool list(PGconn *conn, const struct config *config, struct dead_options *given, struct error *err)
{
    (void)config;
    PGresult *dead = find(conn, sql_dead_list, given, err);
    PGresult *closed = dead ? find(conn, sql_dead_list_closed, given, err) : NULL;
    size_t printed = 0;
    if (closed && given->json) {
        putchar('[');
        print_json(dead, &printed);
        print_json(closed, &printed);
        puts("]");
    } else if (closed) {
        printf("%-7s %-16s %12s %-20s %-16s %4s %-20s %s\n", "state", "queue", "id", "key", "type", "tries", "since",
               "reason");
        for (int row = 0; row < PQntuples(dead); row++)
            print_row(dead, row, "dead");
        for (int row = 0; row < PQntuples(closed); row++)
            print_row(closed, row, "closed");
    }
    bool ok = closed != NULL;
    PQclear(dead);
    PQclear(closed);
    return ok;
}

/* What was named and is not there: most often a slip, and then silence would pass for success. */
static bool not_found(const struct dead_options *given, struct error *err)
{
    const struct dead_filter *filter = &given->filter;
    return error_set(err, ERROR_USAGE, "dead %s: no dead letter%s%s%s%s%s%s%s%s in %s%s", given->verb,
                     strcmp(given->verb, "show") == 0 ? "" : " and no closed key", filter->id ? " with id " : "",
                     filter->id ? filter->id : "", filter->key ? " of key " : "", filter->key ? filter->key : "",
                     filter->error ? " with an error like \"" : "", filter->error ? filter->error : "",
                     filter->error ? "\"" : "", filter->queue ? "queue " : "any queue",
                     filter->queue ? filter->queue : "");
}

static bool show(PGconn *conn, const struct config *config, struct dead_options *given, struct error *err)
{
    (void)config;
    PGresult *dead = find(conn, sql_dead_show, given, err);
    if (!dead)
        return false;
    if (PQntuples(dead) == 0 && is_named(given)) {
        PQclear(dead);
        return not_found(given, err);
    }
    size_t printed = 0;
    if (given->json) {
        putchar('[');
        print_json(dead, &printed);
        puts("]");
    }
    for (int row = 0; !given->json && row < PQntuples(dead); row++)
        print_full(dead, row);
    PQclear(dead);
    return true;
}

/* One that only workers use. */
static bool act_on_other(PGconn *conn, enum dead_action action, const struct dead_filter *filter,
                         struct dead_counts *counts, struct error *err)
{
    struct queue_config *queue = other_queue_read(conn, filter->queue, err);
    bool ok = queue && dead_act(conn, queue, action, filter, counts, err);
    other_queue_free(queue);
    return ok;
}

/* What to do comes first: names may be long. */
static bool left_busy(const char *verb, const struct dead_counts *counts, struct error *err)
{
    char more[40] = "";
    if (counts->busy > DEAD_NAMES)
        snprintf(more, sizeof more, "; and %" PRId64 " more", counts->busy - DEAD_NAMES);
    return error_set(err, ERROR_CONFLICT,
                     "dead %s: run it again for what is busy now (`pgcourier drain` the queue first, if it stays so): "
                     "%s%s",
                     verb, counts->busy_names, more);
}

/* On standard error, one line. */
static void tell(const struct dead_refusal *refusal)
{
    struct error line;
    error_set(&line, ERROR_CONFLICT, "queue %s%s%s%s%.*s: %s; %s", refusal->queue, refusal->id ? ", id " : "",
              refusal->id ? refusal->id : "", refusal->key ? ", key " : "",
              refusal->key ? (int)utf8_fit(span_of(refusal->key), KEY_BYTES) : 0, refusal->key ? refusal->key : "",
              refusal->why, refusal->remedy);
    fprintf(stderr, "pgcourier: left as it is: %s\n", line.text);
}

/* Goes on after a queue that fails, if the database is there; *err has the first failure. */
static bool act_on_queues(PGconn *conn, const struct config *config, const struct dead_options *given,
                          enum dead_action action, struct dead_counts *counts, struct error *err)
{
    bool ok = true, configured = !given->filter.queue;
    for (size_t i = 0; i < config->queue_count && PQstatus(conn) == CONNECTION_OK; i++) {
        struct error failure;
        const struct queue_config *queue = &config->queues[i];
        if (given->filter.queue && strcmp(given->filter.queue, queue->name) != 0)
            continue;
        configured = true;
        if (dead_act(conn, queue, action, &given->filter, counts, &failure))
            continue;
        if (ok)
            *err = failure;
        else
            (void)command_fail(&failure);
        ok = false;
    }
    return configured ? ok : act_on_other(conn, action, &given->filter, counts, err);
}

static void print_counts(bool retry, const struct dead_counts *counts)
{
    printf("%s %" PRId64 " dead letter%s, opened %" PRId64 " closed key%s", retry ? "retried" : "dropped",
           counts->letters, counts->letters == 1 ? "" : "s", counts->keys, counts->keys == 1 ? "" : "s");
    if (counts->refused > 0)
        printf(", left %" PRId64 " as %s", counts->refused, counts->refused == 1 ? "it is" : "they are");
    putchar('\n');
}

static bool act(PGconn *conn, const struct config *config, struct dead_options *given, struct error *err)
{
    bool retry = strcmp(given->verb, "retry") == 0;
    struct dead_counts counts = {.tell = tell};
    bool ok = act_on_queues(conn, config, given, retry ? DEAD_RETRY : DEAD_DROP, &counts, err);
    given->partly_done = ok && counts.refused > 0;
    if (ok && counts.letters + counts.keys + counts.busy + counts.refused == 0 && is_named(given))
        return not_found(given, err);
    if ((ok && counts.busy == 0) || counts.letters + counts.keys + counts.refused > 0)
        print_counts(retry, &counts);
    if (ok && counts.busy > 0)
        return left_busy(given->verb, &counts, err);
    return ok;
}

static const struct {
    const char *name;
    bool (*run)(PGconn *conn, const struct config *config, struct dead_options *given, struct error *err);
} verbs[] = {
    {"list", list},
    {"show", show},
    {"retry", act},
    {"drop", act},
};

static bool run_verb(PGconn *conn, const struct config *config, struct dead_options *given, struct error *err)
{
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(verbs[i].name, given->verb) == 0)
            return verbs[i].run(conn, config, given, err);
    const char *const names[] = {"list", "show", "retry", "drop", NULL};
    char hint[48];
    return error_set(err, ERROR_USAGE, "dead: no such thing to do as \"%s\"%s", given->verb,
                     suggest_text(given->verb, names, hint, sizeof hint));
}

static int run(int argc, char **argv)
{
    struct dead_options given = {0};
    struct error err = {0};
    options_parse(&options, argc, argv, &given);
    given.filter.moves = &given.moves;
    struct config *config = config_load(given.config_path, &err);
    PGconn *conn = config ? command_connect(config->database, "dead", &err) : NULL;
    bool known = conn && (!given.filter.queue || other_queue_check(conn, config, given.filter.queue, &err));
    const struct argument arguments[] = {{"--error", ARGUMENT_PATTERN, given.filter.error}, {.name = NULL}};
    bool ok = known && argument_check(conn, "dead", arguments, &err) && run_verb(conn, config, &given, &err);
    PQfinish(conn);
    config_free(config);
    column_moves_done(&given.moves);
    int code = ok ? EXIT_OK : command_fail(&err);
    return given.partly_done ? EXIT_DATAERR : code;
}

const struct command command_dead = {"dead", "list, show, retry or drop what was given up", run};
