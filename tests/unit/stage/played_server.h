/* tests/unit/stage/played_server.h -- a database connection, the server it talks to, and a libpq that can be broken.
 *
 *   set_up -> is_spoken_to -> say_welcome -> is_spoken_to -> say_hello -> ... -> next_event -> tear_down
 *
 * The program is linked with --wrap for the functions of libpq that are here. */
#ifndef TESTS_UNIT_PLAYED_SERVER_H
#define TESTS_UNIT_PLAYED_SERVER_H

#include "relay/config/config.h"
#include "relay/postgres/db.h"

#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKEND 4711
#define TURNS_MAX 2000 /* of up to 10 ms */

static struct db *db;
static struct pollset *ps;
static struct error err;
static struct db_result result;
static int listening = -1, peer = -1;
static instant_us now;
static struct db_options options = {.application_name = "test",
                                    .prepared = PREPARED_AUTO,
                                    .statement_timeout_us = SECOND_US,
                                    .read_write = true,
                                    .seed = 1};

/* ---- libpq, where it cannot be made to fail from outside ---- */

static const char *broken = ""; /* the function that fails */
static int full;                /* calls of PQflush() that could not send everything */
static int prepares;            /* statements prepared */
static const char *sent[16];    /* statements sent unprepared */
static size_t sent_count;

int __real_PQsetnonblocking(PGconn *conn, int on);
int __wrap_PQsetnonblocking(PGconn *conn, int on);

int __real_PQpipelineSync(PGconn *conn);
int __real_PQenterPipelineMode(PGconn *conn);
int __real_PQsendPrepare(PGconn *conn, const char *name, const char *sql, int count, const Oid *types);
int __real_PQsendQueryParams(PGconn *conn, const char *sql, int count, const Oid *types, const char *const *values,
                             const int *lengths, const int *formats, int format);
int __real_PQflush(PGconn *conn);
int __wrap_PQpipelineSync(PGconn *conn);
int __wrap_PQenterPipelineMode(PGconn *conn);
int __wrap_PQsendPrepare(PGconn *conn, const char *name, const char *sql, int count, const Oid *types);
int __wrap_PQsendQueryParams(PGconn *conn, const char *sql, int count, const Oid *types, const char *const *values,
                             const int *lengths, const int *formats, int format);
int __wrap_PQflush(PGconn *conn);

static inline bool is_broken(const char *name)
{
    return strcmp(broken, name) == 0;
}

int __wrap_PQsetnonblocking(PGconn *conn, int on)
{
    return is_broken("PQsetnonblocking") ? -1 : __real_PQsetnonblocking(conn, on);
}

int __wrap_PQpipelineSync(PGconn *conn)
{
    return is_broken("PQpipelineSync") ? 0 : __real_PQpipelineSync(conn);
}

int __wrap_PQenterPipelineMode(PGconn *conn)
{
    return is_broken("PQenterPipelineMode") ? 0 : __real_PQenterPipelineMode(conn);
}

int __wrap_PQsendPrepare(PGconn *conn, const char *name, const char *sql, int count, const Oid *types)
{
    prepares++;
    return is_broken("PQsendPrepare") ? 0 : __real_PQsendPrepare(conn, name, sql, count, types);
}

/* NOLINTNEXTLINE(readability-function-size): the signature is libpq's. */
int __wrap_PQsendQueryParams(PGconn *conn, const char *sql, int count, const Oid *types, const char *const *values,
                             const int *lengths, const int *formats, int format)
{
    if (strncmp(broken, "PQsendQueryParams ", 18) == 0 && strstr(sql, broken + 18))
        return 0;
    if (sent_count < sizeof sent / sizeof sent[0])
        sent[sent_count++] = sql;
    return __real_PQsendQueryParams(conn, sql, count, types, values, lengths, formats, format);
}

int __wrap_PQflush(PGconn *conn)
{
    if (full > 0) {
        full--;
        return 1;
    }
    return is_broken("PQflush") ? -1 : __real_PQflush(conn);
}

/* ---- the server ---- */

static inline void say(char type, const void *body, size_t size)
{
    char message[256];
    uint32_t length = htonl((uint32_t)size + 4);
    ck_assert_uint_lt(size, sizeof message - 5);
    message[0] = type;
    memcpy(message + 1, &length, 4);
    memcpy(message + 5, body, size);
    ck_assert_int_eq(send(peer, message, size + 5, MSG_NOSIGNAL), (ssize_t)size + 5);
}

static char transaction_status = 'I'; /* or T: in a transaction, E: in one that has failed */

static inline void say_ready(void)
{
    say('Z', &transaction_status, 1);
}

static inline void say_complaint(const char *severity, const char *text)
{
    char body[200];
    int size = snprintf(body, sizeof body, "S%s%cV%s%cC42501%cM%s%c%c", severity, 0, severity, 0, 0, text, 0, 0);
    say('E', body, (size_t)size);
}

/* Returns when the client's kernel has the end, and with it all that was said before. */
static inline void hang_up(void)
{
    struct tcp_info tcp = {0};
    socklen_t size = sizeof tcp;
    ck_assert_int_eq(shutdown(peer, SHUT_WR), 0);
    for (int i = 0; i < TURNS_MAX && tcp.tcpi_state != TCP_FIN_WAIT2; i++, poll(NULL, 0, 1))
        ck_assert_int_eq(getsockopt(peer, IPPROTO_TCP, TCP_INFO, &tcp, &size), 0);
    ck_assert_int_eq(tcp.tcpi_state, TCP_FIN_WAIT2);
}

/* A row of texts: what comes before it, itself, and what follows it. */
static inline void say_row(int columns, const char *const *values)
{
    static const char column[] = "c\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0";
    char heads[128], row[128];
    uint16_t count = htons((uint16_t)columns);
    memcpy(heads, &count, 2);
    memcpy(row, &count, 2);
    size_t heads_size = 2, row_size = 2;
    for (int i = 0; i < columns; i++) {
        uint32_t length = htonl((uint32_t)strlen(values[i]));
        memcpy(heads + heads_size, column, sizeof column);
        heads_size += sizeof column;
        memcpy(row + row_size, &length, 4);
        memcpy(row + row_size + 4, values[i], strlen(values[i]));
        row_size += 4 + strlen(values[i]);
    }
    say('2', "", 0);
    say('T', heads, heads_size);
    say('D', row, row_size);
    say('C', "SELECT 1", 9);
}

static inline void say_welcome(void)
{
    const uint32_t key[] = {htonl(BACKEND), htonl(1)};
    say('R', "\0\0\0\0", 4);
    say('K', key, sizeof key);
    say_ready();
}

static inline void say_hello_as(const char *backend, const char *recovery, const char *encoding)
{
    const char *const values[] = {backend, recovery, encoding, "read committed"};
    say('1', "", 0);
    say_row(4, values);
    say_ready();
}

static inline void say_hello(const char *recovery)
{
    say_hello_as("4711", recovery, "UTF8");
}

static inline void say_settings(int statements)
{
    const char *const value[] = {""};
    for (int i = 0; i < statements; i++) {
        say('1', "", 0);
        say_row(1, value);
    }
    say_ready();
}

/* ---- the client ---- */

static inline enum db_event turn(void)
{
    pollset_clear(ps);
    db_prepare(db, ps);
    pollset_deadline(ps, now + 10 * MS_US);
    ck_assert_msg(pollset_wait(ps, now, &err), "%s", err.text);
    return db_progress(db, ps, now, &result, &err);
}

static inline enum db_event next_event(void)
{
    enum db_event event = DB_NOTHING;
    for (int i = 0; i < TURNS_MAX && event == DB_NOTHING; i++)
        event = turn();
    return event;
}

/* Turns until the server has been sent something since the last time; false: the client has given up. */
static inline bool is_spoken_to(void)
{
    char bytes[4096];
    for (int i = 0; i < TURNS_MAX; i++) {
        if (turn() == DB_DOWN)
            return false;
        if (peer < 0)
            peer = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (peer >= 0 && read(peer, bytes, sizeof bytes) > 0)
            return true;
    }
    ck_abort_msg("nothing was sent");
    return false;
}

static inline void assert_down(const char *text)
{
    ck_assert_int_eq(next_event(), DB_DOWN);
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    ck_assert(!db_is_idle(db));
}

static inline void set_up(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    static char conninfo[128];
    listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listening, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listening, 4), 0);
    ck_assert_int_eq(getsockname(listening, (struct sockaddr *)&address, &size), 0);
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%u user=u dbname=d sslmode=disable gssencmode=disable",
             ntohs(address.sin_port));
    options.conninfo = conninfo;
    db = db_new(&options);
    ps = pollset_new();
}

static inline void tear_down(void)
{
    db_free(db);
    pollset_free(ps);
    close(peer);
    close(listening);
}

static inline void come_up(void)
{
    ck_assert(is_spoken_to());
    say_welcome();
    ck_assert(is_spoken_to());
    say_hello("false");
    ck_assert(is_spoken_to());
    say_settings(2);
    ck_assert_int_eq(next_event(), DB_UP);
    ck_assert(db_is_idle(db) && !db_is_shared(db));
}

#endif
