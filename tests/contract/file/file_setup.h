/* tests/contract/file/file_setup.h -- the file sink and a folder of its own for each test.
 *
 *   start_test and stop_test are a test case's fixture;  add_many* -> contract_run -> count_lines */
#ifndef TESTS_CONTRACT_FILE_SETUP_H
#define TESTS_CONTRACT_FILE_SETUP_H

#include "tests/contract/sink_contract.h"
#include "tests/support/run_suite.h"
#include "tests/support/temporary_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 30000

extern const struct sink_type sink_file;

/* What the settings table fills; the offsets in it are checked by opening. */
struct file_settings {
    char *path, *mode;
    bool sync;
};

static char directory[128], path[160];
static struct file_settings settings;
static struct contract_setup setup = {
    .name = "file", .type = &sink_file, .settings = &settings, .destination = "orders"};

static inline void start(struct contract_setup *s)
{
    (void)s;
    temporary_folder(directory, sizeof directory);
    snprintf(path, sizeof path, "%s/events.jsonl", directory);
    settings = (struct file_settings){.path = path, .sync = true};
}

static inline void stop(struct contract_setup *s)
{
    (void)s;
    char other[128];
    unlink(path);
    snprintf(other, sizeof other, "%s.1", path);
    unlink(other);
    ck_assert_int_eq(rmdir(directory), 0);
}

static inline void start_test(void)
{
    start(&setup);
}

static inline void stop_test(void)
{
    stop(&setup);
}

static inline char *file_text(const char *name)
{
    FILE *in = fopen(name, "re");
    ck_assert_ptr_nonnull(in);
    char *text = calloc(1, 8u << 20);
    size_t size = fread(text, 1, (8u << 20) - 1, in);
    fclose(in);
    text[size] = '\0';
    return text;
}

/* Counts the lines that are JSON and those that are not; the file must end with a newline. */
static inline int count_lines(const char *name, int *ret_torn)
{
    char *text = file_text(name), *rest = text;
    int good = 0;
    *ret_torn = 0;
    if (*text)
        ck_assert_int_eq(text[strlen(text) - 1], '\n');
    for (char *line; (line = strsep(&rest, "\n")) != NULL && rest;) {
        json_t *parsed = json_loads(line, 0, NULL);
        if (parsed)
            good++;
        else
            ++*ret_torn;
        json_decref(parsed);
    }
    free(text);
    return good;
}

static inline void add_many(struct contract *c, size_t n, size_t payload_bytes)
{
    char *payload = malloc(payload_bytes + 2);
    memset(payload, 'x', payload_bytes + 2);
    payload[0] = payload[payload_bytes + 1] = '"';
    for (size_t i = 0; i < n; i++) {
        struct delivery *d = contract_add(c, "7", (struct span){payload, payload_bytes + 2});
        contract_event(d)->payload_kind = PAYLOAD_JSON;
    }
    free(payload);
}

#endif
