/* tests/support/http_server.h -- an HTTP/1.1 server inside the test, which answers as told.
 *
 *   http_server_start -> http_server_script* -> requests -> http_server_stop
 *
 * A request whose path ends in /deaf is never answered. A thread a connection. Requests are counted when their last
 * byte is read. Where a test needs an order of events it waits for a counter, never for time. */
#ifndef TESTS_SUPPORT_HTTP_SERVER_H
#define TESTS_SUPPORT_HTTP_SERVER_H

#include "relay/base/span.h"

#include <stdint.h>

struct http_server;

struct http_script {
    const char *answer; /* all its bytes, status line to body; borrowed until stop; NULL: HTTP_SERVER_OK */
    size_t size;        /* of the answer; 0: it ends before its first NUL */
    size_t cut;         /* write only so many of them, then close; 0 = all */
    bool silent;        /* close without a byte once the request is read */
    bool reset;         /* close with RST instead of FIN */
    bool close;         /* close after the answer */
    bool hold;          /* answer only after http_server_release() */
    size_t first;       /* write so many of them by themselves; 0 = all at once */
    const char *late;   /* after the answer http_server_release() has these bytes written; borrowed until stop */
    size_t late_size;   /* of them; 0: they end before their first NUL */
    bool early;         /* answer before reading the body */
};

#define HTTP_SERVER_OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

struct http_counts {
    size_t connections, open;         /* ever accepted; of them not closed yet */
    size_t requests, held, held_most; /* `held` now, and the most at once */
    size_t late;                      /* so often what is late has arrived at the other side's socket */
};

/* On 127.0.0.1, any free port. With a certificate and a key (PEM files) it speaks TLS. */
struct http_server *http_server_start(const char *certificate_file, const char *key_file);
void http_server_stop(struct http_server *server); /* cuts all connections */
int http_server_port(const struct http_server *server);

/* Before its first connection: it speaks no later version of TLS than this one of OpenSSL's (TLS1_1_VERSION). */
void http_server_limit_tls(struct http_server *server, int version);

void http_server_script(struct http_server *server, struct http_script script); /* for requests from now on */
void http_server_release(struct http_server *server);                           /* those held now, and all later ones */
struct http_counts http_server_counts(struct http_server *server);

/* The last request: head without the blank line, and body. Valid until the next request ends. */
const char *http_server_head(struct http_server *server);
struct span http_server_body(struct http_server *server);

/* The value of a header of the last request in `text`; false when it is absent or there twice. */
bool http_server_header(struct http_server *server, const char *name, char *text, size_t size);

#endif
