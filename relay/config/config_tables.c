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
    {.name = "database",
     .kind = SETTING_SECRET,
     .offset = AT_CONFIG(database),
     .fallback = "",
     .help = "where the tables are: any libpq connection string; what it leaves out comes from the `PG*` variables, "
             "service files and `~/.pgpass`"},
    {.name = "listen_database",
     .kind = SETTING_SECRET,
     .offset = AT_CONFIG(listen_database),
     .help = "a direct connection for LISTEN, where `database` is a pooler; else `database`"},
    {.name = "prepared",
     .kind = SETTING_CHOICE,
     .offset = AT_CONFIG(prepared),
     .fallback = "auto",
     .choices = prepared_names,
     .help = "prepared statements; `off` behind a pooler that mixes up sessions, `auto` finds out"},
    {.name = "shutdown_timeout",
     .kind = SETTING_DURATION,
     .offset = AT_CONFIG(shutdown_timeout_us),
     .fallback = "30s",
     .max = HOUR_US,
     .help = "how long SIGTERM waits for what is in flight"},
    {.name = "statement_timeout",
     .kind = SETTING_DURATION,
     .offset = AT_CONFIG(statement_timeout_us),
     .fallback = "30s",
     .min = 100 * MS_US,
     .max = HOUR_US,
     .help = "longest time for one statement of the relay"},
    {.name = "stats_interval",
     .kind = SETTING_DURATION,
     .offset = AT_CONFIG(stats_interval_us),
     .fallback = "10s",
     .max = DAY_US,
     .help = "time between the `queue.stats` lines in the log; `0` = only one at the end"},
    {.name = NULL},
};

const struct setting sink_type_settings[] = {
    {.name = "type", .kind = SETTING_TEXT, .required = true, .help = "what kind of sink this is"},
    {.name = NULL},
};

const struct setting sink_settings[] = {
    {.name = "max_in_flight",
     .kind = SETTING_COUNT,
     .offset = AT_SINK(max_in_flight),
     .fallback = "256",
     .min = 1,
     .max = 1000000,
     .help = "deliveries at once in this sink; the default is 8192 with `type: kafka` and 1024 with `type: redis`"},
    {.name = NULL},
};

const struct setting queue_settings[] = {
    {.name = "preset",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(preset),
     .choices = config_preset_names,
     .help = "settings for a table that you already have: see below"},
    {.name = "table",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(table),
     .help = "the table to read, `SCHEMA.TABLE` without quotes, or `TABLE` of `public`; without it `outbox.events` "
             "with all its columns"},
    {.name = "where",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(where),
     .help =
         "an SQL condition on the table's columns; other rows are left alone. Names that are not PostgreSQL's own are "
         "written with their schema, see [existing-table.md](existing-table.md#the-column-map)"},
    {.name = "ordering",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(ordering),
     .fallback = "per_key",
     .choices = ordering_names,
     .help =
         "how keys are held while their events are delivered, one after the other: `per_key` by locks of an open "
         "transaction, `lease` by entries in `outbox.parked` that run out, for deliveries of minutes and for poolers; "
         "in an `unordered` queue no event waits for another, see [queues.md](queues.md#unordered)"},
    {.name = "locks",
     .kind = SETTING_CHOICE,
     .offset = AT_QUEUE(locks),
     .fallback = "rows",
     .choices = locks_names,
     .help =
         "of an `unordered` queue, how an event is kept for one relay: `rows` locks it with FOR UPDATE SKIP LOCKED, "
         "`advisory` locks its id and does not hold back vacuum"},
    {.name = "sink",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(sink),
     .required = true,
     .help = "one of the names under `sinks`"},
    {.name = "destination",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(destination),
     .help = "topic, stream, list or channel for each event; `{key}`, `{type}`, `{id}` and `{COLUMN}` are replaced, "
             "`{{` and `}}` are braces"},
    {.name = "after",
     .kind = SETTING_CHOICE,
     .offset = AT_QUEUE(after),
     .fallback = "delete",
     .choices = after_names,
     .help = "what happens to a delivered row"},
    {.name = "delayed",
     .kind = SETTING_CHOICE,
     .offset = AT_QUEUE(delayed),
     .fallback = "hold",
     .choices = delayed_names,
     .help = "what an event whose `columns.not_before` is to come does to later events of its key: `hold` keeps them "
             "back, `pass` lets them go"},
    {.name = "then",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(then),
     .help =
         "another queue of this file: a delivered event is put into its table by the statement that takes it out of "
         "this one"},
    {.name = "then_payload",
     .kind = SETTING_CHOICE,
     .offset = AT_QUEUE(then_payload),
     .fallback = "event",
     .choices = then_payload_names,
     .help = "what the next queue gets as payload: the `event`'s own, or the `response` to it, the body of an HTTP "
             "answer or "
             "the standard output of a command; see [stages.md](stages.md#the-answer-as-payload)"},
    {.name = "window",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(window),
     .help = "`23:00-06:00`: outside of these times nothing is claimed, and what was claimed before is finished"},
    {.name = "window_zone",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(window_zone),
     .fallback = "UTC",
     .help = "the time zone of `window`, as PostgreSQL names it: `Europe/Berlin`"},
    {.name = "archive_retention",
     .kind = SETTING_DURATION,
     .offset = AT_QUEUE(archive_retention_us),
     .fallback = "0",
     .max = 36500 * DAY_US,
     .help =
         "how long `after: archive` keeps a row at least: a day of the archive is dropped when all queues that use it "
         "let it go; 1h at least; `0` = for ever"},
    {.name = "dead_retention",
     .kind = SETTING_DURATION,
     .offset = AT_QUEUE(dead_retention_us),
     .fallback = "0",
     .max = 36500 * DAY_US,
     .help = "how long a dead letter is kept; `0` = for ever"},
    {.name = "connections",
     .kind = SETTING_COUNT,
     .offset = AT_QUEUE(connections),
     .fallback = "2",
     .min = 1,
     .max = 64,
     .help = "database connections, each with one claim at a time"},
    {.name = "keys_per_claim",
     .kind = SETTING_COUNT,
     .offset = AT_QUEUE(keys_per_claim),
     .fallback = "512",
     .min = 1,
     .max = 4096,
     .help =
         "keys a claim locks, or twice as many while they have an event or two each and a quick sink; every one takes "
         "a slot in the server's lock table"},
    {.name = "max_events_per_key",
     .kind = SETTING_COUNT,
     .offset = AT_QUEUE(max_events_per_key),
     .fallback = "1024",
     .min = 1,
     .max = 10000,
     .help = "events of one key in one claim; fewer when there are many keys, and 64 where they go one by one"},
    {.name = "max_batch_bytes",
     .kind = SETTING_SIZE,
     .offset = AT_QUEUE(max_batch_bytes),
     .fallback = "4MB",
     .min = KB,
     .max = GB,
     .help = "payload and headers held for one claim; a larger row is delivered alone"},
    {.name = "max_event_bytes",
     .kind = SETTING_SIZE,
     .offset = AT_QUEUE(max_event_bytes),
     .fallback = "0",
     .max = GB,
     .help = "larger events become dead letters; `0` = no limit"},
    {.name = "oldest_share",
     .kind = SETTING_COUNT,
     .offset = AT_QUEUE(oldest_share),
     .fallback = "55",
     .max = 100,
     .help =
         "of 100 keys in a claim, how many are taken from the oldest events; the others are from the newest, or, in "
         "an `unordered` queue with a priority, the most urgent, and the default is 10"},
    {.name = "lock_class",
     .kind = SETTING_COUNT,
     .offset = AT_QUEUE(lock_class),
     .fallback = "0",
     .max = INT32_MAX,
     .help = "first number of the advisory locks, to keep clear of the application's own; `0` = from the table's name. "
             "All relays of a table need the same"},
    {.name = "listen",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(listen),
     .help = "a NOTIFY channel that wakes the queue up; polling goes on besides"},
    {.name = NULL},
};

static const struct setting columns_settings[] = {
    {.name = "id",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(columns.id),
     .fallback = "id",
     .help = "unique, bigint, integer or smallint; orders the events of a key"},
    {.name = "key",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(columns.key),
     .help =
         "what is ordered: bigint, integer, smallint, text, varchar or uuid; events without a key have no order. Of "
         "an `unordered` queue: what is sent as the key"},
    {.name = "type", .kind = SETTING_TEXT, .offset = AT_QUEUE(columns.type), .help = "the event's type"},
    {.name = "payload",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(columns.payload),
     .help = "json, jsonb, text, varchar or bytea, sent byte for byte; not mapped: the row as JSON"},
    {.name = "headers",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(columns.headers),
     .help = "json, jsonb or text: a JSON object of headers"},
    {.name = "event_id",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(columns.event_id),
     .help = "the application's own identifier of the event"},
    {.name = "traceparent", .kind = SETTING_TEXT, .offset = AT_QUEUE(columns.traceparent), .help = "W3C trace context"},
    {.name = "created_at",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(columns.created_at),
     .help = "timestamptz or timestamp: when the event was made; latency is measured from it"},
    {.name = "not_before",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(columns.not_before),
     .help = "timestamptz; the event is not delivered earlier, by the database's clock"},
    {.name = "after",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(columns.after),
     .help = "bigint, integer, or an array of either: ids of events of this queue that must be done before this one is "
             "delivered"},
    {.name = "priority",
     .kind = SETTING_TEXT,
     .offset = AT_QUEUE(columns.priority),
     .help = "bigint, integer or smallint, of an `unordered` queue: larger goes first; null is the least"},
    {.name = NULL},
};

static const struct setting retry_settings[] = {
    {.name = "base",
     .kind = SETTING_DURATION,
     .offset = AT_QUEUE(retry_base_us),
     .fallback = "1s",
     .min = MS_US,
     .max = DAY_US,
     .help = "longest wait after the first failure; doubles with each one, and the wait is drawn at random below it"},
    {.name = "max",
     .kind = SETTING_DURATION,
     .offset = AT_QUEUE(retry_max_us),
     .fallback = "5m",
     .min = MS_US,
     .max = 7 * DAY_US,
     .help = "longest wait of all"},
    {.name = "attempts",
     .kind = SETTING_COUNT,
     .offset = AT_QUEUE(retry_attempts),
     .fallback = "12",
     .min = 1,
     .max = 1000000,
     .help = "deliveries that may fail by the event's own fault before it is given up"},
    {.name = "on_exhausted",
     .kind = SETTING_CHOICE,
     .offset = AT_QUEUE(on_exhausted),
     .fallback = "dead_letter",
     .choices = on_exhausted_names,
     .help = "then: `dead_letter` takes the event out and goes on with its key, `park` closes the key until `pgcourier "
             "dead retry`"},
    {.name = NULL},
};

static const struct setting poll_settings[] = {
    {.name = "min",
     .kind = SETTING_DURATION,
     .offset = AT_QUEUE(poll_min_us),
     .fallback = "2ms",
     .min = 100,
     .max = HOUR_US,
     .help = "wait between polls while there is work; up to 25 times as long from 1,500 events/s on (50 with leases)"},
    {.name = "max",
     .kind = SETTING_DURATION,
     .offset = AT_QUEUE(poll_max_us),
     .fallback = "200ms",
     .min = MS_US,
     .max = HOUR_US,
     .help = "wait when the table has been empty for a while"},
    {.name = NULL},
};

static const struct setting lease_settings[] = {
    {.name = "duration",
     .kind = SETTING_DURATION,
     .offset = AT_QUEUE(lease_us),
     .fallback = "5m",
     .min = SECOND_US,
     .max = 30 * DAY_US,
     .help = "how long a key stays leased after its relay was last heard of; it is renewed at a third of that"},
    {.name = "owner",
     .kind = SETTING_CHOICE,
     .offset = AT_QUEUE(lease_owner),
     .fallback = "backend",
     .choices = lease_owner_names,
     .help = "`backend`: the leases end with the relay's database session, too, so that others take over at once; "
             "`name`: with "
             "their duration alone, as they do anyway behind a pooler that shares sessions"},
    {.name = NULL},
};

const struct config_group queue_groups[] = {
    {"columns", columns_settings, "which column of `table` is what; what is not mapped is not sent"},
    {"retry", retry_settings, "what happens to an event that its sink refuses"},
    {"poll", poll_settings, "how often the table is looked at"},
    {"lease", lease_settings, "with `ordering: lease`: for how long keys are held, and what ends it besides"},
    {NULL, NULL, NULL},
};

const char outbox_table[] = "outbox.events";

const struct setting outbox_columns[] = {
    {.name = "id", .kind = SETTING_TEXT, .offset = AT_QUEUE(columns.id), .fallback = "id"},
    {.name = "key", .kind = SETTING_TEXT, .offset = AT_QUEUE(columns.key), .fallback = "aggregateid"},
    {.name = "type", .kind = SETTING_TEXT, .offset = AT_QUEUE(columns.type), .fallback = "type"},
    {.name = "payload", .kind = SETTING_TEXT, .offset = AT_QUEUE(columns.payload), .fallback = "payload"},
    {.name = "headers", .kind = SETTING_TEXT, .offset = AT_QUEUE(columns.headers), .fallback = "headers"},
    {.name = "event_id", .kind = SETTING_TEXT, .offset = AT_QUEUE(columns.event_id), .fallback = "event_id"},
    {.name = "traceparent", .kind = SETTING_TEXT, .offset = AT_QUEUE(columns.traceparent), .fallback = "traceparent"},
    {.name = "created_at", .kind = SETTING_TEXT, .offset = AT_QUEUE(columns.created_at), .fallback = "created_at"},
    {.name = "not_before", .kind = SETTING_TEXT, .offset = AT_QUEUE(columns.not_before), .fallback = "not_before"},
    {.name = NULL},
};
