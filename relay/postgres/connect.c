#include "relay/postgres/connect.h"

#include "relay/base/arena.h"
#include "relay/postgres/conninfo.h"
#include "relay/postgres/db_hosts.h"
#include "relay/postgres/query.h"
#include "relay/postgres/sqlstate.h"
#include "sql_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_S "10"
#define SERVER_MIN 14 /* the first with date_bin(), which the schema outbox calls */

#define CODE_SIZE 5

/* "SEVERITY:  28P01: text", the form of PQERRORS_VERBOSE: the code's place, or NULL. */
static const char *find_code(const char *text)
{
    for (const char *p = strstr(text, ":  "); p; p = strstr(p + 1, ":  ")) {
        const char *code = p + 3;
        if (strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == CODE_SIZE &&
            strncmp(code + CODE_SIZE, ": ", 2) == 0)
            return code;
    }
    return NULL;
}

/* The lines of a verbose message as they would stand in a short one, in place. */
static void shorten(char *text)
{
    for (char *code; (code = (char *)find_code(text));)
        memmove(code - 1, code + CODE_SIZE + 1, strlen(code + CODE_SIZE + 1) + 1);
    for (char *line; (line = strstr(text, "\nLOCATION:  "));) {
        const char *end = line + 1 + strcspn(line + 1, "\n");
        memmove(line, end, strlen(end) + 1);
    }
}

/* PgBouncer has one code, 08P01, for a password that is wrong and for a server that is away for a moment. */
static bool tells_of_password(const char *code)
{
    return strncmp(code, "08P01", CODE_SIZE) == 0 &&
           (strcasestr(code, "password") || strcasestr(code, "authentication failed"));
}

/* Of several servers' answers the last counts. Where the server gave no code, libpq still knows whether a password was
 * asked for and there was none. That one was used says nothing: a server may vanish after that, too. */
static enum error_kind failed_connection_kind(const PGconn *conn, const char *text)
{
    const char *code = find_code(text);
    for (const char *next = code; next; next = find_code(next))
        code = next;
    if (code ? tells_of_password(code) : PQconnectionNeedsPassword(conn))
        return ERROR_PERMISSION;
    return code ? sqlstate_rule(code)->kind : ERROR_UNREACHABLE;
}

static bool failed(const PGconn *conn, struct error *err)
{
    if (!conn)
        return error_set(err, ERROR_RESOURCE, "database: out of memory");
    char *text = memory_text(PQerrorMessage(conn));
    enum error_kind kind = failed_connection_kind(conn, text);
    shorten(text);
    error_set(err, kind, "database: %s", text);
    free(text);
    return false;
}

/* libpq gives the SQLSTATE of a refused connection in its text only, when asked to be verbose; and that it can be asked
 * only of a connection that has been begun. So it is begun twice: the first time gets as far as a socket. */
static PGconn *connect_verbosely(const struct db_hosts *hosts, const char *name)
{
    /* A server that accepts and never answers would hold us for ever, and `run` has its signals blocked by then. */
    const struct db_default defaults[] = {{"connect_timeout", getenv("PGCONNECT_TIMEOUT") ? "" : CONNECT_TIMEOUT_S},
                                          {NULL, NULL}};
    PGconn *conn = db_hosts_connect(hosts, name, defaults);
    if (!conn || PQstatus(conn) == CONNECTION_BAD)
        return conn;
    PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
    PQreset(conn);
    if (PQstatus(conn) == CONNECTION_OK)
        PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
    return conn;
}

/* PgBouncer says this at the first transaction and hangs up; libpq's last result is about the latter. */
static bool begin_and_commit(PGconn *conn, struct error *err)
{
    if (query_script_in_time(conn, "database", "begin", err) && query_script_in_time(conn, "database", "commit", err))
        return true;
    if (strstr(PQerrorMessage(conn), "statement pooling mode"))
        error_set(err, ERROR_CONFIG, "database: %s; a pooler has to be in transaction or session mode",
                  PQerrorMessage(conn));
    return false;
}

/* Better than a function that is missed in the middle of something. A server, or pooler, may say no version that libpq
 * can read. */
static bool check_server(const PGconn *conn, struct error *err)
{
    int version = PQserverVersion(conn);
    return version == 0 || version >= SERVER_MIN * 10000 ||
           error_set(err, ERROR_CONFIG, "database: the server is PostgreSQL %d, and pgcourier needs %d or later",
                     version / 10000, SERVER_MIN);
}

/* A pooler's clients get a made-up number for their backend's. What each session is told else the role has to say
 * there: see session_settings.sql. */
static bool is_shared(PGconn *conn, bool *ret, struct error *err)
{
    PGresult *hello = query_in_time(conn, "database", sql_session_hello, 0, NULL, err);
    if (!hello)
        return false;
    *ret = query_int(hello, 0, 0) != PQbackendPID(conn);
    bool ok = !*ret || strcmp(query_text(hello, 0, 3), "read committed") == 0;
    if (!ok)
        error_set(err, ERROR_CONFIG,
                  "database: the default isolation level is %s, and behind a pooler it cannot be set for one session; "
                  "alter role \"%s\" in database \"%s\" set default_transaction_isolation = 'read committed'",
                  query_text(hello, 0, 3), PQuser(conn), PQdb(conn));
    PQclear(hello);
    return ok;
}

/* A session that a pooler shares goes on to others, who must not find a search_path of ours in it. */
static bool set_path(PGconn *conn, bool shared, struct error *err)
{
    if (shared)
        return query_share(conn) || error_set(err, ERROR_RESOURCE, "database: out of memory");
    const char *for_session[] = {"false"};
    PGresult *path = query_in_time(conn, "database", sql_session_path, 1, for_session, err);
    bool ok = path != NULL;
    PQclear(path);
    return ok;
}

/* The session settings that every statement of ours relies on, and transactions. */
static bool prepare_session(PGconn *conn, struct error *err)
{
    const char *encoding = PQparameterStatus(conn, "server_encoding");
    /* The server cannot convert SQL_ASCII, so its bytes are taken as they are. */
    bool ascii = encoding && strcmp(encoding, "SQL_ASCII") == 0;
    const char *const params[] = {ascii ? "SQL_ASCII" : "UTF8"};
    if (!check_server(conn, err) || !begin_and_commit(conn, err))
        return false;
    PGresult *result = query_in_time(conn, "database", sql_session_encoding, 1, params, err);
    bool shared, ok = result != NULL && is_shared(conn, &shared, err);
    PQclear(result);
    return ok && (shared || query_script_in_time(conn, "database", sql_session_command, err)) &&
           set_path(conn, shared, err);
}

/* libpq would wait for name servers for as long as they like, and for those of a name that it calls twice, twice. */
static bool find_hosts(struct db_hosts *hosts, struct error *err)
{
    enum db_hosts_state state;
    struct pollset *ps = pollset_new();
    db_hosts_begin(hosts, clock_now());
    while ((state = db_hosts_turn(hosts, clock_now(), err)) == DB_HOSTS_PENDING) {
        pollset_clear(ps);
        db_hosts_prepare(hosts, ps);
        if (!pollset_wait(ps, clock_now(), err))
            break;
    }
    pollset_free(ps);
    return state == DB_HOSTS_READY || error_prefix(err, "database");
}

PGconn *command_connect(const char *database, const char *command, struct error *err)
{
    if (!conninfo_check(database, err)) {
        error_prefix(err, "database");
        return NULL;
    }
    char name[64];
    snprintf(name, sizeof name, "pgcourier/%s", command);
    struct db_hosts *hosts = db_hosts_new(database);
    PGconn *conn = NULL;
    bool ok = find_hosts(hosts, err);
    if (ok) {
        conn = connect_verbosely(hosts, name);
        ok = conn && PQstatus(conn) == CONNECTION_OK ? prepare_session(conn, err) : failed(conn, err);
    }
    db_hosts_free(hosts);
    if (ok)
        return conn;
    PQfinish(conn);
    return NULL;
}
