/* Destination templates: the router, the check of the configuration and a third, slower reading agree on every template
 * and on every event. */
#include "tests/fuzz/fuzz.h"

#include "relay/config/config_check.h"
#include "relay/route/destination.h"
#include "sinks/sink.h"

#include <inttypes.h>

#define PARTS_MAX 31

static const char *const extra[] = {"region", "tenant"};

/* What a template says: its pieces, in order. */
struct piece {
    char brace;       /* a doubled brace; or 0 */
    struct span text; /* plain text; or, of a name, the name */
    bool is_name;
};

struct reading {
    struct piece pieces[512];
    size_t count;
    bool good;
};

static void read_template(const char *text, struct reading *ret)
{
    ret->count = 0;
    ret->good = true;
    while (*text && ret->good) {
        struct piece *piece = &ret->pieces[ret->count++];
        *piece = (struct piece){0};
        size_t size = strcspn(text, "{}");
        if (size > 0) {
            piece->text = (struct span){text, size};
        } else if (text[0] == text[1]) {
            piece->brace = *text;
            size = 2;
        } else {
            size = 1 + strcspn(text + 1, "{}");
            ret->good = *text == '{' && text[size] == '}' && size > 1;
            piece->text = (struct span){text + 1, size - 1};
            piece->is_name = true;
            size++;
        }
        text += ret->good ? size : 0;
    }
}

/* NULL: no such name. */
static const struct span *value_of(const struct event *event, struct span name, const struct span *id)
{
    const struct span *values[] = {&event->key, &event->type, id, &event->columns[0], &event->columns[1]};
    static const char *const names[] = {"key", "type", "id", "region", "tenant"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (span_equal(name, span_of(names[i])))
            return values[i];
    return NULL;
}

static bool names_are_known(const struct reading *reading, const struct event *event, const struct span *id)
{
    for (size_t i = 0; i < reading->count; i++)
        if (reading->pieces[i].is_name && !value_of(event, reading->pieces[i].text, id))
            return false;
    return true;
}

/* The destination's size, or -1 when the event lacks a part. */
static long fill(const struct reading *reading, const struct event *event, const struct span *id, char *out)
{
    char *end = out;
    for (size_t i = 0; i < reading->count; i++) {
        const struct piece *piece = &reading->pieces[i];
        struct span value = piece->is_name ? *value_of(event, piece->text, id) : piece->text;
        if (piece->brace)
            value = (struct span){&piece->brace, 1};
        if (!value.data)
            return -1;
        end = mempcpy(end, value.data, value.size);
    }
    return end - out;
}

static void check_event(const struct route *route, const struct reading *reading, const struct event *event,
                        const struct span *id)
{
    struct arena *arena = arena_new();
    char *wanted = memory_new(PARTS_MAX * 256 + 4096);
    long size = fill(reading, event, id, wanted);
    struct span to = {NULL, 0};
    struct error err = {0};
    bool good = route_event(route, event, arena, &to, &err);
    FUZZ_CHECK(good == (size >= 0), "%s", err.text);
    if (good) {
        FUZZ_CHECK(span_equal(to, (struct span){wanted, (size_t)size}), "%.*s is not %.*s", (int)to.size, to.data,
                   (int)size, wanted);
        FUZZ_CHECK(to.data[to.size] == '\0', "no NUL after %.*s", (int)to.size, to.data);
    } else {
        fuzz_check_error(&err);
        FUZZ_CHECK(err.kind == ERROR_REFUSED && !to.data, "%s", err.text);
    }
    free(wanted);
    arena_free(arena);
}

/* What check-config says of a template: all that can be said without the table. */
static bool configured(char *template, struct error *err)
{
    static char sink[] = "out", table[] = "events";
    const struct config_place place = {.file = "f", .line = 1, .column = 1};
    const struct yaml_node map = {.kind = YAML_MAP};
    struct sink_config sinks[] = {{.name = sink, .type = sink_type_find("file")}};
    struct queue_config queue = {.table = table, .sink = sink, .destination = template};
    const struct config config = {.sinks = sinks, .sink_count = 1, .queues = &queue, .queue_count = 1};
    return config_check_queue(&place, &map, &config, &queue, err);
}

static void check_template(char *template, const struct event *event)
{
    struct reading reading;
    struct error err = {0}, why = {0};
    read_template(template, &reading);
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, event->id);
    struct span id = span_of(digits);
    bool accepted = configured(template, &why);
    FUZZ_CHECK(accepted == reading.good, "\"%s\" checked: %s", template, why.text);
    struct route *route = route_new(template, extra, sizeof extra / sizeof extra[0], &err);
    bool good = reading.good && names_are_known(&reading, event, &id) && reading.count <= PARTS_MAX;
    FUZZ_CHECK(good == (route != NULL), "\"%s\": %s", template, err.text);
    if (!route)
        fuzz_check_error(&err);
    if (!accepted)
        fuzz_check_error(&why);
    if (route)
        check_event(route, &reading, event, &id);
    route_free(route);
}

static struct span absent_or(struct fuzz_input *in)
{
    return fuzz_byte(in) & 1 ? fuzz_span(in) : (struct span){NULL, 0};
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct span columns[2];
    char *template = fuzz_text(fuzz_span(&in));
    struct event event = {.columns = columns};
    event.key = absent_or(&in);
    event.type = absent_or(&in);
    columns[0] = absent_or(&in);
    columns[1] = absent_or(&in);
    event.id = fuzz_int(&in);
    check_template(template, &event);
    free(template);
    return 0;
}
