/* An event's headers: whatever they are, they are refused or read, and where jansson can hold them it reads the same.
 */
#include "tests/fuzz/fuzz.h"

#include "relay/base/json_check.h"
#include "sinks/event_headers.h"

#include <jansson.h>

static void check_value(const json_t *wanted, struct span value)
{
    if (json_is_null(wanted)) {
        FUZZ_CHECK(!value.data, "null became %.*s", (int)value.size, value.data);
        return;
    }
    FUZZ_CHECK(value.data && value.data[value.size] == '\0', "no value");
    if (json_is_string(wanted)) {
        FUZZ_CHECK(span_equal(value, (struct span){json_string_value(wanted), json_string_length(wanted)}),
                   "another text: %.*s", (int)value.size, value.data);
        return;
    }
    json_t *again = json_loadb(value.data, value.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    FUZZ_CHECK(json_equal(wanted, again), "another value: %.*s", (int)value.size, value.data);
    json_decref(again);
}

static void check_same(const json_t *object, const struct event_headers *headers)
{
    FUZZ_CHECK(headers->count == json_object_size(object), "%zu entries", headers->count);
    for (size_t i = 0; i < headers->count; i++) {
        const struct event_header *header = &headers->list[i];
        const json_t *wanted = json_object_get(object, header->name.data);
        FUZZ_CHECK(wanted, "no entry is called %s", header->name.data);
        check_value(wanted, header->value);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A piece of its own: what is read behind it is found out. */
    char *copy = memcpy(memory_new(size), data, size);
    struct span json = {copy, size};
    struct event_headers headers = {0};
    struct error err;
    bool good = event_headers_read(json, &headers, &err);
    json_t *object = json_loadb(copy, size, JSON_ALLOW_NUL, NULL);
    if (json_is_object(object) && json_check(json, false, NULL)) {
        FUZZ_CHECK(good, "%s: %.*s", err.text, (int)size, copy);
        check_same(object, &headers);
    }
    FUZZ_CHECK(good || err.kind == ERROR_REFUSED, "kind %d", (int)err.kind);
    json_decref(object);
    event_headers_done(&headers);
    free(copy);
    return 0;
}
