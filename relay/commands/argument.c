#include "relay/commands/argument.h"

#include "relay/base/utf8.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 80 /* bytes of a value: a payload may be long */

static const struct {
    const char *name, *expected;
    bool quotes; /* the server's words tell which part of it is wrong */
} kinds[] = {
    [ARGUMENT_TIME] = {"time", "one as PostgreSQL reads times, like \"2026-01-31 12:00+01\"", false},
    [ARGUMENT_INTERVAL] = {"interval", "one as PostgreSQL reads intervals, like \"5 minutes\"", false},
    [ARGUMENT_JSON] = {"JSON", "a JSON value, like {\"n\": 1}", true},
    [ARGUMENT_UUID] = {"UUID", "what `pgcourier take` has printed", false},
    [ARGUMENT_PATTERN] = {"pattern", "a backslash at its end twice, as SQL's LIKE wants it", false},
};

static bool refuse(const char *command, const struct argument *argument, const char *why, struct error *err)
{
    bool quotes = kinds[argument->kind].quotes && why[0];
    size_t shown = utf8_fit(span_of(argument->text), SHOWN_MAX);
    return error_set(err, ERROR_USAGE, "%s: %s \"%.*s%s\" is no %s: write %s%s%s%s", command, argument->name,
                     (int)shown, argument->text, argument->text[shown] ? "..." : "", kinds[argument->kind].name,
                     kinds[argument->kind].expected, quotes ? " (" : "", quotes ? why : "", quotes ? ")" : "");
}

static bool check(PGconn *conn, const char *command, const struct argument *argument, struct error *err)
{
    const char *params[] = {argument->text, kinds[argument->kind].name};
    struct error why = {0};
    PGresult *read = query(conn, "PostgreSQL", sql_argument_read, 2, params, &why);
    bool readable = read && query_bool(read, 0, 0), asked = read || why.kind == ERROR_REFUSED;
    PQclear(read);
    if (!asked)
        return error_set(err, why.kind, "%s: %s", command, why.text);
    return readable || refuse(command, argument, why.text, err);
}

bool argument_check(PGconn *conn, const char *command, const struct argument *arguments, struct error *err)
{
    for (const struct argument *argument = arguments; argument->name; argument++)
        if (argument->text && !check(conn, command, argument, err))
            return false;
    return true;
}

bool argument_is_id(const char *text, size_t size)
{
    size_t sign = size > 0 && text[0] == '-';
    if (size == sign || strspn(text + sign, "0123456789") < size - sign)
        return false;
    errno = 0;
    strtoll(text, NULL, 10);
    return errno == 0;
}
