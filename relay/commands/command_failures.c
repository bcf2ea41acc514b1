#include "relay/commands/command.h"
#include "relay/commands/database.h"
#include "relay/commands/options.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>

struct failures_options {
    struct database database;
    int64_t limit;
    bool json;
};

static const struct setting limit_setting = {"limit", SETTING_COUNT, offsetof(struct failures_options, limit),
                                             "100",   .min = 1,      .max = INT32_MAX};

static const struct option_row option_rows[] = {
    {"queue", 'q', "NAME", "only this queue", .offset = offsetof(struct failures_options, database.queue)},
    {"limit", 'n', "COUNT", "at most so many errors (100)", .setting = &limit_setting},
    {"json", 'j', NULL, "a JSON array, for programs", .offset = offsetof(struct failures_options, json)},
    {.name = NULL}};

static const struct options options = {
    .rows = option_rows,
    .database = true,
    .doc = "What events failed with, most often first: how many are dead, how many keys wait for a retry or for "
           "somebody, and the first and the last time. Where there is very much of it, a part is read and multiplied: "
           "such numbers have a ~, and a rare error may be missing."
           "\v`pgcourier dead retry --error PATTERN` takes up what an error has ended, when its cause is gone. What "
           "waits for a retry comes by itself.",
};

/* The columns of sql/commands/failures.sql. */
enum {
    FAILURES_DEAD,
    FAILURES_WAITING,
    FAILURES_ESTIMATED,
    FAILURES_FIRST,
    FAILURES_LAST,
    FAILURES_QUEUE,
    FAILURES_ERROR,
    FAILURES_JSON
};

static void print_row(const PGresult *rows, int row)
{
    const char *about = query_bool(rows, row, FAILURES_ESTIMATED) ? "~" : "";
    char dead[32], waiting[32];
    snprintf(dead, sizeof dead, "%s%s", about, query_text(rows, row, FAILURES_DEAD));
    snprintf(waiting, sizeof waiting, "%s%s", about, query_text(rows, row, FAILURES_WAITING));
    printf("%10s %10s %-20s %-20s %-16s %s\n", dead, waiting, query_text(rows, row, FAILURES_FIRST),
           query_text(rows, row, FAILURES_LAST), query_text(rows, row, FAILURES_QUEUE),
           query_text(rows, row, FAILURES_ERROR));
}

static void print_all(const PGresult *rows, bool json)
{
    if (json)
        putchar('[');
    else
        printf("%10s %10s %-20s %-20s %-16s %s\n", "dead", "waiting", "first", "last", "queue", "error");
    for (int row = 0; row < PQntuples(rows); row++) {
        if (json)
            printf("%s%s", row ? ",\n" : "", query_text(rows, row, FAILURES_JSON));
        else
            print_row(rows, row);
    }
    if (json)
        puts("]");
}

static bool show(PGconn *conn, const struct failures_options *given, struct error *err)
{
    char limit[24];
    snprintf(limit, sizeof limit, "%" PRId64, given->limit);
    const char *params[] = {given->database.queue, limit};
    PGresult *rows = query(conn, "failures", sql_failures, 2, params, err);
    if (!rows)
        return privilege_explain(conn, 0, "{failures}", err);
    print_all(rows, given->json);
    PQclear(rows);
    return true;
}

static int run(int argc, char **argv)
{
    struct failures_options given = {0};
    struct error err = {0};
    options_parse(&options, argc, argv, &given);
    PGconn *conn = database_connect(&given.database, "failures", &err);
    bool ok = conn && show(conn, &given, &err);
    PQfinish(conn);
    return ok ? EXIT_OK : command_fail(&err);
}

const struct command command_failures = {"failures", "print what events failed with", run};
