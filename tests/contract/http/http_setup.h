/* tests/contract/http/http_setup.h -- the HTTP sink and a server that answers as told (tests/support/http_server.h).
 *
 *   http_tcase starts the server before each test and stops it after;  http_server_script* -> contract_open */
#ifndef TESTS_CONTRACT_HTTP_SETUP_H
#define TESTS_CONTRACT_HTTP_SETUP_H

#include "sinks/http/http_request.h"
#include "tests/contract/sink_contract.h"
#include "tests/support/http_server.h"

extern const struct sink_type sink_http;

/* Of the running test, which may change the settings until contract_open(), and stop and start the server. */
extern struct http_fixture {
    struct http_server *server;
    char url[64];
    struct http_settings settings;
} http;
extern struct contract_setup http_setup;

TCase *http_tcase(const char *name);

/* The last request has the header once and with that value; has none of that name, or several. */
bool http_has_header(const char *name, const char *value);
bool http_lacks_header(const char *name);

/* One event with key "k" and payload {} through a fresh sink; its verdict and the kind of its cause. */
enum verdict http_verdict_of_one(enum error_kind *ret_kind);

#endif
