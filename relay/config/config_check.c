#include "relay/config/config_check.h"

#include "relay/base/arena.h"
#include "relay/base/suggest.h"
#include "relay/postgres/conninfo.h"
#include "sinks/sink.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define RETENTION_MIN_US (INT64_C(3600) * 1000000)
#define NAME_BYTES_MAX 63       /* as PostgreSQL's own names */
#define IDENTIFIER_BYTES_MAX 63 /* NAMEDATALEN - 1 */

bool config_check_name(const struct config_place *place, const char *name, struct error *err)
{
    size_t size = strlen(name);
    bool good = size <= NAME_BYTES_MAX && isalpha((unsigned char)name[0]);
    for (size_t i = 0; good && i < size; i++)
        good = isalnum((unsigned char)name[i]) || name[i] == '_' || name[i] == '-';
    return good ||
           config_error(place, err, "not a good name; start with a letter and use up to %d letters, digits, _ and -",
                        NAME_BYTES_MAX);
}

bool config_check_database(const struct config_place *place, const char *text, struct error *err)
{
    const char *why = conninfo_refusal(text);
    if (why)
        return config_error(place, err, "%s", why);
    struct error cause;
    return conninfo_check(text, &cause) || config_error(place, err, "%s", cause.text);
}

/* ---- destination ---- */

/* {NAME}, {{ and }}. What the names stand for is only known with the table. */
static bool check_template(const struct config_place *place, const char *text, struct error *err)
{
    for (const char *c = text; *c; c++) {
        if ((*c == '{' || *c == '}') && c[1] == *c) {
            c++;
        } else if (*c == '}') {
            return config_error(place, err, "\"%s\" has a } without a {; write }} for the character", text);
        } else if (*c == '{') {
            size_t name = strcspn(c + 1, "{}");
            if (c[1 + name] != '}')
                return config_error(place, err, "\"%s\" has a { without a }; write {NAME}, or {{ for the character",
                                    text);
            if (name == 0)
                return config_error(place, err, "\"%s\" has an empty {}; write {key}, {type}, {id} or {COLUMN}", text);
            c += 1 + name;
        }
    }
    return true;
}

/* Nothing of the `kind` has this name, and `names`, which is freed, are those there are. */
static bool no_such(const struct config_place *place, const char *kind, const char *name, const char **names,
                    struct error *err)
{
    const char *near = suggest(name, names);
    if (near)
        config_error(place, err, "no %s \"%s\" under %ss; did you mean \"%s\"?", kind, name, kind, near);
    else
        config_error(place, err, "no %s \"%s\" under %ss; add it there", kind, name, kind);
    free(names);
    return false;
}

static bool check_sink(const struct config_place *place, const struct yaml_node *map, const struct config *config,
                       const struct queue_config *queue, struct error *err)
{
    const struct sink_config *sink = config_sink(config, queue->sink);
    struct config_place at = config_place_of(place, map, "sink");
    if (!sink) {
        const char **names = memory_array(config->sink_count + 1, sizeof *names);
        for (size_t i = 0; i < config->sink_count; i++)
            names[i] = config->sinks[i].name;
        return no_such(&at, "sink", queue->sink, names, err);
    }
    if (!queue->destination && sink->type->needs_destination)
        return config_error(place, err,
                            "\"destination\" is missing and %s sinks need one; add e.g. destination: \"%s.{type}\"",
                            sink->type->name, queue->name);
    at = config_place_of(place, map, "destination");
    return !queue->destination || check_template(&at, queue->destination, err);
}

/* ---- table ---- */

static bool check_table_name(const struct config_place *place, const char *table, struct error *err)
{
    size_t parts = 0;
    const char *part = table;
    bool good = true;
    while (good) {
        size_t size = strcspn(part, ".");
        good = size > 0 && size <= IDENTIFIER_BYTES_MAX && strcspn(part, "\"'; \t\r\n") >= size;
        parts++;
        if (part[size] == '\0')
            break;
        part += size + 1;
    }
    return (good && parts <= 2) ||
           config_error(place, err, "\"%.80s\" is not a table's name; write SCHEMA.TABLE without quotes", table);
}

static bool same_table(const char *a, const char *b)
{
    /* Without a schema a name means public's. */
    a += strncmp(a, "public.", 7) == 0 ? 7 : 0;
    b += strncmp(b, "public.", 7) == 0 ? 7 : 0;
    return strcmp(a, b) == 0;
}

static bool check_table(const struct config_place *place, const struct yaml_node *map, const struct config *config,
                        const struct queue_config *queue, struct error *err)
{
    struct config_place at = config_place_of(place, map, "table");
    if (!check_table_name(&at, queue->table, err))
        return false;
    for (const struct queue_config *other = config->queues; other < queue; other++) {
        if (!same_table(other->table, queue->table))
            continue;
        if (!queue->where || !other->where)
            return config_error(&at, err,
                                "queue \"%s\" already reads %s; give each of the two a \"where\" that leaves the "
                                "other's rows alone",
                                other->name, other->table);
        at = config_place_of(place, map, "lock_class");
        if (queue->lock_class != other->lock_class)
            return config_error(&at, err,
                                "queue \"%s\" reads the same table with another lock class; give both the same, or "
                                "one key could be delivered by both at once",
                                other->name);
    }
    return true;
}

/* The place of GROUP.NAME. */
static struct config_place place_in(const struct config_place *place, const struct yaml_node *map, const char *group,
                                    const char *name)
{
    static const struct yaml_node nothing = {.kind = YAML_MAP};
    struct config_place outer = config_place_of(place, map, group);
    const struct yaml_pair *pair = yaml_find(map, group);
    return config_place_of(&outer, pair ? pair->value : &nothing, name);
}

#define TIME_LENGTH 5 /* of "HH:MM" */

/* HH:MM; 24:00 only as an end. */
static bool is_time(const char *text, bool end)
{
    if (strspn(text, "0123456789") != 2 || text[2] != ':' || strspn(text + 3, "0123456789") != 2)
        return false;
    int hour = (text[0] - '0') * 10 + text[1] - '0', minute = (text[3] - '0') * 10 + text[4] - '0';
    return minute < 60 && (hour < 24 || (end && hour == 24 && minute == 0));
}

static bool check_window(const struct config_place *place, const struct yaml_node *map,
                         const struct queue_config *queue, struct error *err)
{
    const char *window = queue->window;
    if (!window)
        return true;
    struct config_place at = config_place_of(place, map, "window");
    const char *until = window + TIME_LENGTH + 1;
    if (!is_time(window, false) || window[TIME_LENGTH] != '-' || !is_time(until, true) || until[TIME_LENGTH] != '\0')
        return config_error(&at, err, "\"%.40s\" is no window; write HH:MM-HH:MM, as in \"23:00-06:00\"", window);
    return strncmp(window, until, TIME_LENGTH) != 0 ||
           config_error(&at, err, "\"%s\" begins where it ends; leave it out to claim at all times", window);
}

/* What only events without an order have. */
static bool check_unordered(const struct config_place *place, const struct yaml_node *map,
                            const struct queue_config *queue, struct error *err)
{
    if (queue->unordered)
        return true;
    struct config_place at = place_in(place, map, "columns", "priority");
    if (queue->columns.priority)
        return config_error(&at, err,
                            "events of one key go in the order of their ids; add ordering: unordered, or "
                            "leave it out");
    at = config_place_of(place, map, "locks");
    return !yaml_find(map, "locks") ||
           config_error(&at, err, "keys are locked by advisory locks; add ordering: unordered, or leave it out");
}

bool config_check_queue(const struct config_place *place, const struct yaml_node *map, const struct config *config,
                        const struct queue_config *queue, struct error *err)
{
    struct config_place columns = config_place_of(place, map, "columns");
    if (yaml_find(map, "columns") && !yaml_find(map, "table") && !queue->preset)
        return config_error(&columns, err,
                            "columns belong to a table of yours; add \"table\", or leave both out for outbox.events");
    struct config_place base = place_in(place, map, "retry", "base"), latency = config_place_of(place, map, "latency");
    if (queue->retry_base_us > queue->retry_max_us)
        return config_error(&base, err, "longer than retry.max; make it the shorter one");
    if (queue->latency_us > queue->poll_max_us)
        return config_error(&latency, err, "longer than poll.max; make it the shorter one, or leave one of them out");
    if (queue->archive_retention_us > 0 && queue->after != AFTER_ARCHIVE) {
        struct config_place at = config_place_of(place, map, "archive_retention");
        return config_error(&at, err, "this queue archives nothing; add after: archive, or leave it out");
    }
    if (queue->archive_retention_us > 0 && queue->archive_retention_us < RETENTION_MIN_US) {
        struct config_place at = config_place_of(place, map, "archive_retention");
        return config_error(&at, err,
                            "shorter than an hour, the least that can be kept; write 1h or more, or 0 for ever");
    }
    if (yaml_find(map, "lease") && !config_leases(queue)) {
        struct config_place at = config_place_of(place, map, "lease");
        return config_error(&at, err, "this queue leases nothing; add ordering: lease, or leave it out");
    }
    if (!check_unordered(place, map, queue, err))
        return false;
    return check_window(place, map, queue, err) && check_table(place, map, config, queue, err) &&
           check_sink(place, map, config, queue, err);
}

/* ---- stages ---- */

static bool find_next(const struct config_place *place, const struct config *config, struct queue_config *queue,
                      struct error *err)
{
    for (size_t i = 0; i < config->queue_count; i++)
        if (strcmp(config->queues[i].name, queue->then) == 0)
            queue->next = &config->queues[i];
    if (queue->next)
        return true;
    const char **names = memory_array(config->queue_count + 1, sizeof *names);
    for (size_t i = 0; i < config->queue_count; i++)
        names[i] = config->queues[i].name;
    return no_such(place, "queue", queue->then, names, err);
}

/* Among the queues behind this one; it need not be one of a ring itself. */
static bool comes_back(const struct config *config, const struct queue_config *queue)
{
    const struct queue_config *next = queue->next;
    for (size_t i = 0; next && next != queue && i < config->queue_count; i++)
        next = next->next;
    return next == queue;
}

/* `map` is the queue's. */
static bool check_then_payload(const struct config_place *place, const struct yaml_node *map,
                               const struct config *config, struct queue_config *queue, struct error *err)
{
    struct config_place at = config_place_of(place, map, "then_payload");
    if (!queue->then)
        return !yaml_find(map, "then_payload") ||
               config_error(&at, err, "this queue hands nothing on; add then: QUEUE, or leave it out");
    if (queue->then_payload == THEN_EVENT)
        return true;
    const struct sink_config *sink = config_sink(config, queue->sink);
    const char *why = "";
    if (!sink->type->response_max)
        return config_error(&at, err, "%s sinks answer nothing that could go on; leave it out, or use http or exec",
                            sink->type->name);
    queue->response_max = sink->type->response_max(sink->settings, &why);
    if (queue->response_max == 0)
        return config_error(&at, err, "sink \"%s\" has no answer to each event: %s; mend that, or leave this out",
                            sink->name, why);
    return queue->next->columns.payload ||
           config_error(&at, err, "queue \"%s\" has no column for it; map one there: columns: { payload: ... }",
                        queue->then);
}

static bool check_then(const struct config_place *at, const struct config *config, struct queue_config *queue,
                       struct error *err)
{
    if (!find_next(at, config, queue, err))
        return false;
    return !comes_back(config, queue) ||
           config_error(at, err, "what goes on to \"%s\" comes back to this queue, for ever; leave one \"then\" out",
                        queue->then);
}

bool config_link_queues(const struct config_place *place, const struct yaml_node *map, const struct config *config,
                        struct error *err)
{
    for (size_t i = 0; i < config->queue_count; i++) {
        struct queue_config *queue = &config->queues[i];
        struct config_place of_queue = config_place_of(place, map, queue->name);
        const struct yaml_node *of = yaml_find(map, queue->name)->value;
        struct config_place at = config_place_of(&of_queue, of, "then");
        if ((queue->then && !check_then(&at, config, queue, err)) ||
            !check_then_payload(&of_queue, of, config, queue, err))
            return false;
    }
    return true;
}
