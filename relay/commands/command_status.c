#include "relay/base/clock.h"
#include "relay/base/statement.h"
#include "relay/commands/command.h"
#include "relay/commands/options.h"
#include "relay/postgres/connect.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "relay/table/table.h"
#include "relay/table/table_sql.h"
#include "sql_text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define COUNT_LIMIT "100000" /* counting more would read the table to say what an estimate says */

struct status_options {
    const char *config_path;
    bool json, watch;
    int64_t every_us; /* between two looks with --watch */
};

static const struct setting every_setting = {"watch", SETTING_DURATION,   offsetof(struct status_options, every_us),
                                             "2s",    .min = 100 * MS_US, .max = 3600 * SECOND_US};

struct status {
    const char *queue, *table;
    int64_t waiting;
    bool estimated;
    const char *window; /* the queue's, when it is closed now; or NULL */
    double oldest_s;    /* negative: nothing waits, or no created_at is mapped */
    PGresult *state;    /* sql/commands/status_state.sql */
};

enum { STATE_PARKED, STATE_CLOSED, STATE_DEAD, STATE_PAUSED, STATE_SINCE, STATE_BY, STATE_REASON };

static void read_watch(const struct option_row *row, void *values, const char *text, struct argp_state *state)
{
    struct status_options *given = values;
    given->watch = true;
    if (text)
        options_read_setting(row, values, text, state);
}

static const struct option_row option_rows[] = {
    {"config", 'c', "FILE", "the configuration", .offset = offsetof(struct status_options, config_path)},
    {"json", 'j', NULL, "a JSON document, for programs", .offset = offsetof(struct status_options, json)},
    {"watch", 'w', "DURATION", "look again, every 2s or so often", .setting = &every_setting, .read = read_watch,
     .flags = OPTION_ARG_OPTIONAL},
    {.name = NULL}};

static void check_options(void *values, struct argp_state *state)
{
    const struct status_options *given = values;
    if (given->watch && given->json)
        argp_error(state, "--watch is for people and --json for programs");
    options_need_config(given->config_path, state);
}

static const struct options options = {
    .rows = option_rows,
    .check = check_options,
    .doc =
        "Prints for each queue how many events wait, the age of the oldest that will be delivered, how many keys are "
        "parked (they wait for a retry, for their time or for other events), how many closed after failures or paused "
        "(until somebody opens or resumes them: their events wait, and are not in that age), and how many events "
        "are dead; and whether the queue is paused. Above " COUNT_LIMIT " waiting events the number is an estimate, "
        "marked with ~."
        "\v--watch redraws the screen until it is interrupted; to a file or a pipe it writes one look after the other.",
};

static PGresult *ask(PGconn *conn, const char *what, const char *template, const struct sql_variable *variables,
                     const char *const *params, struct error *err)
{
    char *sql = sql_render(template, variables, err);
    if (!sql)
        return NULL; /* LCOV_EXCL_LINE */
    int count = 0;
    while (params[count])
        count++;
    PGresult *result = query(conn, what, sql, count, params, err);
    free(sql);
    return result;
}

static bool ask_waiting(PGconn *conn, const struct table *table, const struct sql_variable *variables,
                        struct status *ret, struct error *err)
{
    const char *limits[] = {COUNT_LIMIT, table->name_sql, NULL};
    PGresult *result = ask(conn, table->plain_name, sql_status_waiting, variables, limits, err);
    if (!result)
        return false;
    int64_t counted = query_int(result, 0, 0), guess = query_int(result, 0, 1);
    PQclear(result);
    ret->estimated = counted >= strtoll(COUNT_LIMIT, NULL, 10);
    ret->waiting = ret->estimated && guess > counted ? guess : counted;
    return true;
}

static bool ask_oldest(PGconn *conn, const struct table *table, const struct sql_variable *variables,
                       struct status *ret, struct error *err)
{
    const char *queue[] = {ret->queue, NULL};
    PGresult *result = ask(conn, table->plain_name, sql_status_oldest, variables, queue, err);
    if (!result)
        return false;
    const char *oldest = PQntuples(result) ? query_text(result, 0, 0) : NULL;
    ret->oldest_s = oldest ? strtod(oldest, NULL) : -1;
    PQclear(result);
    return true;
}

/* One row of which the condition, or created_at, cannot be told must not hide all other figures: then all rows are
 * counted, or there is no age. */
static bool ask_table(PGconn *conn, const struct table *table, const struct queue_config *queue, struct status *ret,
                      struct error *err)
{
    struct arena *arena = arena_new();
    struct queue_config asked = *queue;
    const struct sql_variable *variables = table_variables(table, &asked, arena);
    struct error cause = {0};
    bool ok = ask_waiting(conn, table, variables, ret, &cause);
    if (!ok && cause.kind == ERROR_REFUSED && asked.where) {
        fprintf(stderr, "pgcourier: queue %s: `where` fails for some row, so all rows of %s are counted: %s\n",
                ret->queue, table->plain_name, cause.text);
        asked.where = NULL;
        variables = table_variables(table, &asked, arena);
        ok = ask_waiting(conn, table, variables, ret, &cause);
        ret->estimated = true;
    }
    if (ok && !ask_oldest(conn, table, variables, ret, &cause)) {
        ok = cause.kind == ERROR_REFUSED;
        ret->oldest_s = -1;
    }
    if (!ok)
        *err = cause;
    arena_free(arena);
    return ok;
}

static bool ask_state(PGconn *conn, struct status *ret, struct error *err)
{
    ret->state = query(conn, "outbox.status_parked", sql_status_state, 1, &ret->queue, err);
    return ret->state != NULL;
}

static bool ask_window(PGconn *conn, const struct queue_config *queue, struct status *ret, struct error *err)
{
    if (!queue->window)
        return true;
    const char *params[] = {queue->window, queue->window_zone};
    PGresult *result = query(conn, "window_zone", sql_window_look, 2, params, err);
    if (!result)
        return false;
    ret->window = query_int(result, 0, 0) ? NULL : queue->window;
    PQclear(result);
    return true;
}

static void print_age(double seconds)
{
    if (seconds < 0)
        printf("%10s", "-");
    else if (seconds < 120)
        printf("%8.1f s", seconds);
    else if (seconds < 7200)
        printf("%8.1f m", seconds / 60);
    else
        printf("%8.1f h", seconds / 3600);
}

static void print_line(const struct status *status)
{
    char waiting[32];
    snprintf(waiting, sizeof waiting, "%s%" PRId64, status->estimated ? "~" : "", status->waiting);
    printf("%-20s %10s ", status->queue, waiting);
    print_age(status->oldest_s);
    const char *since = query_text(status->state, 0, STATE_SINCE);
    printf(" %8s %8s %8s %8s%s%s%s%s%s%s%s%s\n", query_text(status->state, 0, STATE_PARKED),
           query_text(status->state, 0, STATE_CLOSED), query_text(status->state, 0, STATE_PAUSED),
           query_text(status->state, 0, STATE_DEAD), since ? "  paused since " : "", since ? since : "",
           since ? " by " : "", since ? query_text(status->state, 0, STATE_BY) : "", since ? ": " : "",
           since ? query_text(status->state, 0, STATE_REASON) : "", status->window ? "  closed outside of " : "",
           status->window ? status->window : "");
}

static json_t *to_json(const struct status *status)
{
    const PGresult *state = status->state;
    json_t *paused = query_text(state, 0, STATE_SINCE)
                         ? json_pack("{s:s, s:s, s:s}", "since", query_text(state, 0, STATE_SINCE), "by",
                                     query_text(state, 0, STATE_BY), "reason", query_text(state, 0, STATE_REASON))
                         : json_null();
    return json_pack("{s:s, s:s, s:I, s:b, s:o, s:I, s:I, s:I, s:I, s:o, s:b}", "queue", status->queue, "table",
                     status->table, "waiting", (json_int_t)status->waiting, "estimated", (int)status->estimated,
                     "oldest_age_s", status->oldest_s < 0 ? json_null() : json_real(status->oldest_s), "parked",
                     (json_int_t)query_int(state, 0, STATE_PARKED), "closed",
                     (json_int_t)query_int(state, 0, STATE_CLOSED), "paused_keys",
                     (json_int_t)query_int(state, 0, STATE_PAUSED), "dead", (json_int_t)query_int(state, 0, STATE_DEAD),
                     "paused", paused, "window_closed", status->window != NULL);
}

static bool show_queue(PGconn *conn, const struct queue_config *queue, bool first, json_t *ret_list, struct error *err)
{
    struct table *table = table_inspect(conn, queue, err);
    if (!table)
        return false;
    struct status status = {.queue = queue->name, .table = table->plain_name};
    struct queue_config due = *queue;
    due.delayed = DELAYED_PASS; /* what is not due does not wait for a relay */
    bool ok = ask_table(conn, table, &due, &status, err) && ask_state(conn, &status, err) &&
              ask_window(conn, queue, &status, err);
    if (!ok)
        privilege_explain(conn, table->oid, "{status}", err);
    if (ok && first && !ret_list)
        printf("%-20s %10s %10s %8s %8s %8s %8s\n", "queue", "waiting", "oldest", "parked", "closed", "paused", "dead");
    if (ok && ret_list)
        json_array_append_new(ret_list, to_json(&status));
    else if (ok)
        print_line(&status);
    PQclear(status.state);
    table_free(table);
    return ok;
}

static bool show_queues(PGconn *conn, const struct config *config, json_t *ret_list, struct error *err)
{
    for (size_t i = 0; i < config->queue_count; i++)
        if (!show_queue(conn, &config->queues[i], i == 0, ret_list, err))
            return false;
    return true;
}

static void print_json(json_t *list)
{
    json_t *document = json_pack("{s:O}", "queues", list);
    json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(document);
}

/* Back to the first line, and away with all below: written with what follows it, at once. */
#define CLEAR_SCREEN "\033[H\033[J"

/* Until a signal ends the program, or the database is lost. */
static bool watch(PGconn *conn, const struct config *config, int64_t every_us, struct error *err)
{
    const struct timespec pause = {.tv_sec = every_us / SECOND_US, .tv_nsec = every_us % SECOND_US * 1000};
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    for (;;) {
        if (isatty(STDOUT_FILENO))
            fputs(CLEAR_SCREEN, stdout);
        if (!show_queues(conn, config, NULL, err))
            return false;
        fflush(stdout);
        nanosleep(&pause, NULL);
    }
}

static int run(int argc, char **argv)
{
    struct status_options given = {0};
    struct error err = {0};
    options_parse(&options, argc, argv, &given);
    struct config *config = config_load(given.config_path, &err);
    PGconn *conn = config ? command_connect(config->database, "status", &err) : NULL;
    json_t *list = given.json ? json_array() : NULL;
    bool ok = conn && (given.watch ? watch(conn, config, given.every_us, &err) : show_queues(conn, config, list, &err));
    if (ok && list)
        print_json(list);
    json_decref(list);
    PQfinish(conn);
    config_free(config);
    return ok ? EXIT_OK : command_fail(&err);
}

const struct command command_status = {"status", "print how each queue stands", run};
