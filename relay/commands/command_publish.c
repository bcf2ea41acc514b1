#include "relay/base/arena.h"
#include "relay/commands/argument.h"
#include "relay/commands/command.h"
#include "relay/commands/database.h"
#include "relay/commands/options.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAYLOAD_MAX ((size_t)64 << 20) /* jsonb holds up to 256 MB; this is a command for trying things out */

struct publish_options {
    struct database database;
    const char *key, *type, *aggregatetype, *payload, *traceparent, *not_before, *dedupe_key, *on_duplicate;
    json_t *headers; /* NULL: none */
};

static void add_header(const struct option_row *row, void *values, const char *arg, struct argp_state *state)
{
    (void)row;
    struct publish_options *given = values;
    char *name = memory_text(arg), *equals = strchr(name, '=');
    if (!given->headers)
        given->headers = json_object();
    if (equals)
        *equals = '\0';
    if (!equals || !*name)
        argp_error(state, "--header %s: write NAME=VALUE", arg);
    else if (json_object_set_new(given->headers, name, json_string(equals + 1)) != 0)
        argp_error(state, "--header %s: not UTF-8", arg);
    free(name);
}

static const struct option_row option_rows[] = {
    {"key", 'k', "KEY", "the ordering key; none: no order", .offset = offsetof(struct publish_options, key)},
    {"type", 't', "TYPE", "the event's type", .offset = offsetof(struct publish_options, type)},
    {"payload", 'p', "JSON", "the payload; - reads standard input; none: SQL NULL",
     .offset = offsetof(struct publish_options, payload)},
    {"header", 'H', "K=V", "a header; may be given several times", .read = add_header},
    {"aggregatetype", 0, "TYPE", "the aggregate's type", .offset = offsetof(struct publish_options, aggregatetype)},
    {"traceparent", 0, "VALUE", "the W3C trace context", .offset = offsetof(struct publish_options, traceparent)},
    {"not-before", 0, "TIME", "deliver it at this time or later; as PostgreSQL reads times",
     .offset = offsetof(struct publish_options, not_before)},
    {"dedupe-key", 0, "KEY", "of the events with this key one waits at a time",
     .offset = offsetof(struct publish_options, dedupe_key)},
    {"on-duplicate", 0, "ignore|replace|again", "what becomes of another one (ignore)",
     .offset = offsetof(struct publish_options, on_duplicate)},
    {.name = NULL}};

static void check_options(void *values, struct argp_state *state)
{
    const struct publish_options *given = values;
    if (given->on_duplicate && !given->dedupe_key)
        argp_error(state, "--on-duplicate is for events with a --dedupe-key");
    if (!given->key && !given->type && !given->payload)
        argp_error(state, "give the event's payload with --payload JSON, or --payload - for standard input");
}

static const struct options options = {
    .rows = option_rows,
    .database = true,
    .check = check_options,
    .doc = "Puts one event into outbox.events and prints its id; nothing when it is a duplicate that is ignored.",
};

/* All of standard input, NUL-terminated; free() it. */
static char *read_input(struct error *err)
{
    size_t size = 0, room = 1 << 16;
    char *text = memory_new(room);
    while (!feof(stdin) && !ferror(stdin) && size < PAYLOAD_MAX) {
        size += fread(text + size, 1, room - size - 1, stdin);
        if (size + 1 == room) {
            room *= 2;
            text = memory_resize(text, room, 1);
        }
    }
    text[size] = '\0';
    if (ferror(stdin))
        error_set(err, ERROR_USAGE, "publish: standard input: %s", strerror(errno));
    else if (size >= PAYLOAD_MAX)
        error_set(err, ERROR_USAGE, "publish: the payload is larger than %zu MB", PAYLOAD_MAX >> 20);
    else if (strlen(text) != size)
        error_set(err, ERROR_USAGE, "publish: the payload has a NUL byte and is not JSON");
    else
        return text;
    free(text);
    return NULL;
}

static bool publish(PGconn *conn, const struct publish_options *given, struct error *err)
{
    char *input = NULL, *headers = NULL;
    const char *payload = given->payload;
    if (payload && strcmp(payload, "-") == 0) {
        input = read_input(err);
        if (!input)
            return false;
        payload = input;
    }
    if (given->headers)
        headers = json_dumps(given->headers, JSON_COMPACT);
    const char *params[] = {given->key,         given->type,       payload,           given->aggregatetype, headers,
                            given->traceparent, given->not_before, given->dedupe_key, given->on_duplicate};
    const struct argument arguments[] = {
        {"--payload", ARGUMENT_JSON, payload}, {"--not-before", ARGUMENT_TIME, given->not_before}, {.name = NULL}};
    PGresult *result = argument_check(conn, "publish", arguments, err)
                           ? query(conn, "publish", sql_publish_event, sizeof params / sizeof params[0], params, err)
                           : NULL;
    if (result && query_text(result, 0, 0))
        puts(query_text(result, 0, 0));
    else if (!result)
        privilege_explain(conn, 0, "{publish}", err);
    PQclear(result);
    free(headers);
    free(input);
    return result != NULL;
}

static int run(int argc, char **argv)
{
    struct publish_options given = {0};
    struct error err = {0};
    options_parse(&options, argc, argv, &given);
    PGconn *conn = database_connect(&given.database, "publish", &err);
    bool ok = conn && publish(conn, &given, &err);
    PQfinish(conn);
    json_decref(given.headers);
    return ok ? EXIT_OK : command_fail(&err);
}

const struct command command_publish = {"publish", "put one event into outbox.events", run};
