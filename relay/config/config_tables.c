#include "relay/config/config_tables.h"

#include "relay/base/clock.h"
#include "relay/config/config.h"
#include "relay/config/config_preset_names.h"

#include <stddef.h>

#define AT_CONFIG(member) offsetof(struct config, member)
#define AT_SINK(member) offsetof(struct sink_config, member)
#define AT_QUEUE(member) offsetof(struct queue_config, member)

#define KB INT64_C(1024)
#define GB (KB * KB * KB)

/* In the order of the enums in config.h. */
static const char *const prepared_names[] = {"auto", "on", "off", NULL};
static const char *const after_names[] = {"delete", "archive", NULL};
static const char *const then_payload_names[] = {"event", "response", NULL};
static const char *const delayed_names[] = {"hold", "pass", NULL};
static const char *const on_exhausted_names[] = {"dead_letter", "park", NULL};

static const char *const ordering_names[] = {"per_key", "lease", "unordered", NULL};
static const char *const lease_owner_names[] = {"backend", "name", NULL};
static const char *const locks_names[] = {"rows", "advisory", NULL};

const struct setting config_settings[] = {
    {"database", SETTING_SECRET, AT_CONFIG(database), "",
     .help = "libpq connection string; `PG*` variables fill in the rest"},
    {"listen_database", SETTING_SECRET, AT_CONFIG(listen_database),
     .help = "direct connection on which a relay is woken, if `database` is a pooler"},
    {"prepared", SETTING_CHOICE, AT_CONFIG(prepared), "auto", .choices = prepared_names,
     .help = "`auto`: off behind a pooler"},
    {"shutdown_timeout", SETTING_DURATION, AT_CONFIG(shutdown_timeout_us), "30s", .max = HOUR_US,
     .help = "for events in flight at SIGTERM"},
    {"statement_timeout", SETTING_DURATION, AT_CONFIG(statement_timeout_us), "30s", .min = 100 * MS_US, .max = HOUR_US,
     .help = "for one statement of the relay"},
    {"stats_interval", SETTING_DURATION, AT_CONFIG(stats_interval_us), "10s", .max = DAY_US,
     .help = "between log lines `queue.stats`; `0`: at the end"},
    {.name = NULL},
};

const struct setting sink_type_settings[] = {
    {"type", SETTING_TEXT, .required = true, .help = "kind of sink"},
    {.name = NULL},
};

const struct setting sink_settings[] = {
    {"max_in_flight", SETTING_COUNT, AT_SINK(max_in_flight), "256", .min = 1, .max = 1000000,
     .help = "deliveries at once; default in `kafka` 8192, `redis` 1024"},
    {.name = NULL},
};

const struct setting queue_settings[] = {
    {"preset", SETTING_TEXT, AT_QUEUE(preset), .choices = config_preset_names, .help = "see below"},
    {"table", SETTING_TEXT, AT_QUEUE(table), .help = "`SCHEMA.TABLE` without quotes; default `outbox.events`"},
    {"where", SETTING_TEXT, AT_QUEUE(where),
     .help = "SQL condition; [names need their schema](existing-table.md#the-column-map)"},
    {"ordering", SETTING_TEXT, AT_QUEUE(ordering), "per_key", .choices = ordering_names,
     .help = "`lease`: for deliveries of minutes and poolers; `unordered`: no event waits for another, "
             "[queues.md](queues.md#unordered)"},
    {"locks", SETTING_CHOICE, AT_QUEUE(locks), "rows", .choices = locks_names,
     .help = "if `unordered`: `rows` by FOR UPDATE SKIP LOCKED; `advisory` does not hold back vacuum"},
    {"sink", SETTING_TEXT, AT_QUEUE(sink), .required = true, .help = "one of the names under `sinks`"},
    {"destination", SETTING_TEXT, AT_QUEUE(destination),
     .help = "topic, stream, list, channel or path; `{key}`, `{type}`, `{id}`, `{COLUMN}` are replaced, `{{` and "
             "`}}` are braces"},
    {"after", SETTING_CHOICE, AT_QUEUE(after), "delete", .choices = after_names, .help = "delivered rows"},
    {"delayed", SETTING_CHOICE, AT_QUEUE(delayed), "hold", .choices = delayed_names,
     .help = "what later events of a key do while one is not due"},
    {"then", SETTING_TEXT, AT_QUEUE(then), .help = "queue of this file that a delivered event moves to"},
    {"then_payload", SETTING_CHOICE, AT_QUEUE(then_payload), "event", .choices = then_payload_names,
     .help = "the event's own, or the [response](stages.md#the-answer-as-payload) of `http` or `exec`"},
    {"window", SETTING_TEXT, AT_QUEUE(window), .help = "`23:00-06:00`: outside, nothing is claimed"},
    {"window_zone", SETTING_TEXT, AT_QUEUE(window_zone), "UTC", .help = "zone of `window`"},
    {"archive_retention", SETTING_DURATION, AT_QUEUE(archive_retention_us), "0", .max = 36500 * DAY_US,
     .help = "of archived rows, 1h or more; `0`: for ever"},
    {"dead_retention", SETTING_DURATION, AT_QUEUE(dead_retention_us), "0", .max = 36500 * DAY_US,
     .help = "`0`: for ever"},
    {"connections", SETTING_COUNT, AT_QUEUE(connections), "2", .min = 1, .max = 64,
     .help = "to the database, each with one claim"},
    {"keys_per_claim", SETTING_COUNT, AT_QUEUE(keys_per_claim), "512", .min = 1, .max = 4096,
     .help = "each takes a slot of the lock table; twice as many with few events each"},
    {"max_events_per_key", SETTING_COUNT, AT_QUEUE(max_events_per_key), "1024", .min = 1, .max = 10000,
     .help = "in one claim; fewer with many keys"},
    {"max_batch_bytes", SETTING_SIZE, AT_QUEUE(max_batch_bytes), "4MB", .min = KB, .max = GB,
     .help = "payload and headers of a claim; larger rows go alone"},
    {"max_event_bytes", SETTING_SIZE, AT_QUEUE(max_event_bytes), "0", .max = GB,
     .help = "larger events become dead letters; `0`: no limit"},
    {"oldest_share", SETTING_COUNT, AT_QUEUE(oldest_share), "55", .max = 100,
     .help = "percent of a claim's keys from the oldest events, the rest from the newest, or by priority "
             "(default 10)"},
    {"lock_class", SETTING_COUNT, AT_QUEUE(lock_class), "0", .max = INT32_MAX,
     .help = "first number of the advisory locks; the same for all relays of a table; `0`: from its name"},
    {"latency", SETTING_DURATION, AT_QUEUE(latency_us), "5ms", .min = 100, .max = 60 * SECOND_US,
     .help = "half are claimed within it while many come; more costs less"},
    {.name = NULL},
};

static const struct setting columns_settings[] = {
    {"id", SETTING_TEXT, AT_QUEUE(columns.id), "id",
     .help = "bigint, integer or smallint, unique: the order of a key's events"},
    {"key", SETTING_TEXT, AT_QUEUE(columns.key),
     .help = "bigint, integer, smallint, text, varchar or uuid; null or not mapped: no order"},
    {"type", SETTING_TEXT, AT_QUEUE(columns.type), .help = "any type, sent as text"},
    {"payload", SETTING_TEXT, AT_QUEUE(columns.payload),
     .help = "json, jsonb, text, varchar or bytea; not mapped: the row as JSON"},
    {"headers", SETTING_TEXT, AT_QUEUE(columns.headers), .help = "json, jsonb or text: a JSON object"},
    {"event_id", SETTING_TEXT, AT_QUEUE(columns.event_id), .help = "the application's own identifier"},
    {"traceparent", SETTING_TEXT, AT_QUEUE(columns.traceparent), .help = "W3C trace context"},
    {"created_at", SETTING_TEXT, AT_QUEUE(columns.created_at), .help = "timestamptz or timestamp, for latency"},
    {"not_before", SETTING_TEXT, AT_QUEUE(columns.not_before), .help = "timestamptz; no delivery before"},
    {"after", SETTING_TEXT, AT_QUEUE(columns.after),
     .help = "bigint, integer or an array: ids of events that must be [done "
             "before](stages.md#after-other-events)"},
    {"priority", SETTING_TEXT, AT_QUEUE(columns.priority),
     .help = "bigint, integer or smallint, if `unordered`: larger first, null last"},
    {.name = NULL},
};

static const struct setting retry_settings[] = {
    {"base", SETTING_DURATION, AT_QUEUE(retry_base_us), "1s", .min = MS_US, .max = DAY_US,
     .help = "longest random wait after the first failure; doubles each time"},
    {"max", SETTING_DURATION, AT_QUEUE(retry_max_us), "5m", .min = MS_US, .max = 7 * DAY_US,
     .help = "limit of these waits"},
    {"attempts", SETTING_COUNT, AT_QUEUE(retry_attempts), "12", .min = 1, .max = 1000000,
     .help = "failures before `on_exhausted`"},
    {"on_exhausted", SETTING_CHOICE, AT_QUEUE(on_exhausted), "dead_letter", .choices = on_exhausted_names,
     .help = "`park`: the key is closed until `pgcourier dead retry`"},
    {.name = NULL},
};

static const struct setting poll_settings[] = {
    {"max", SETTING_DURATION, AT_QUEUE(poll_max_us), "200ms", .min = MS_US, .max = HOUR_US,
     .help = "time between looks while a queue cannot rest"},
    {.name = NULL},
};

static const struct setting lease_settings[] = {
    {"duration", SETTING_DURATION, AT_QUEUE(lease_us), "5m", .min = SECOND_US, .max = 30 * DAY_US,
     .help = "of a key without renewal; renewed at a third"},
    {"owner", SETTING_CHOICE, AT_QUEUE(lease_owner), "backend", .choices = lease_owner_names,
     .help = "`backend`: leases also end with the relay's session; `name`: only by duration, as always behind a "
             "pooler"},
    {.name = NULL},
};

const struct config_group queue_groups[] = {
    {"columns", columns_settings, "the columns of `table`; others are not sent"},
    {"retry", retry_settings, "after a refused delivery"},
    {"poll", poll_settings, "how often claims look at the table"},
    {"lease", lease_settings, "with `ordering: lease`"},
    {NULL, NULL, NULL},
};

const char outbox_table[] = "outbox.events";

const struct setting outbox_columns[] = {
    {"id", SETTING_TEXT, AT_QUEUE(columns.id), .fallback = "id"},
    {"key", SETTING_TEXT, AT_QUEUE(columns.key), .fallback = "aggregateid"},
    {"type", SETTING_TEXT, AT_QUEUE(columns.type), .fallback = "type"},
    {"payload", SETTING_TEXT, AT_QUEUE(columns.payload), .fallback = "payload"},
    {"headers", SETTING_TEXT, AT_QUEUE(columns.headers), .fallback = "headers"},
    {"event_id", SETTING_TEXT, AT_QUEUE(columns.event_id), .fallback = "event_id"},
    {"traceparent", SETTING_TEXT, AT_QUEUE(columns.traceparent), .fallback = "traceparent"},
    {"created_at", SETTING_TEXT, AT_QUEUE(columns.created_at), .fallback = "created_at"},
    {"not_before", SETTING_TEXT, AT_QUEUE(columns.not_before), .fallback = "not_before"},
    {.name = NULL},
};
