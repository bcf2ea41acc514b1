#include "tests/contract/http/http_setup.h"

#include <stdio.h>

struct http_fixture http;

static void start(struct contract_setup *setup)
{
    http.server = http_server_start(NULL, NULL);
    snprintf(http.url, sizeof http.url, "http://127.0.0.1:%d/in", http_server_port(http.server));
    http.settings = (struct http_settings){.url = http.url,
                                           .timeout_us = 10 * SECOND_US,
                                           .connect_timeout_us = 5 * SECOND_US,
                                           .max_response = 65536,
                                           .connections = 256};
    setup->settings = &http.settings;
}

static void stop(struct contract_setup *setup)
{
    (void)setup;
    http_server_stop(http.server);
    http.server = NULL;
}

struct contract_setup http_setup = {
    .name = "http", .type = &sink_http, .destination = "", .deaf_destination = "deaf", .start = start, .stop = stop};

static void each_start(void)
{
    start(&http_setup);
}

static void each_stop(void)
{
    stop(&http_setup);
}

TCase *http_tcase(const char *name)
{
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, each_start, each_stop);
    tcase_set_timeout(tcase, 60);
    return tcase;
}

bool http_has_header(const char *name, const char *value)
{
    char text[16384];
    return http_server_header(http.server, name, text, sizeof text) && strcmp(text, value) == 0;
}

bool http_lacks_header(const char *name)
{
    char text[256];
    return !http_server_header(http.server, name, text, sizeof text);
}

enum verdict http_verdict_of_one(enum error_kind *ret_kind)
{
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    ck_assert(contract_run(c, 10000));
    enum verdict verdict = d->verdict;
    *ret_kind = d->cause ? d->cause->kind : ERROR_NONE;
    contract_end(c);
    return verdict;
}
