/* relay/config/config.h -- what the configuration file says, checked.
 *
 *   config_load -> read the structs -> config_free
 *
 * YAML, one file. Every scalar may use ${VAR}, ${VAR:-default} and $$ for a dollar sign, expanded after parsing,
 * so that a value cannot become structure. Every secret may be given as NAME_file: PATH. Unknown keys are errors.
 * Messages read FILE:LINE:COLUMN: what is wrong; what to write instead. */
#pragma once

#include "relay/base/error.h"
#include "relay/base/setting.h"

#include <stdint.h>
#include <stdio.h>

struct sink_type;
struct config_mark;

enum after { AFTER_DELETE, AFTER_ARCHIVE };
enum then_payload { THEN_EVENT, THEN_RESPONSE };
enum delayed { DELAYED_HOLD, DELAYED_PASS };
enum on_exhausted { ON_EXHAUSTED_DEAD_LETTER, ON_EXHAUSTED_PARK };
enum lease_owner { LEASE_BACKEND, LEASE_NAME };
enum locks { LOCKS_ROWS, LOCKS_ADVISORY };

struct sink_config {
    char *name;
    const struct sink_type *type;
    void *settings;        /* type->settings_size bytes, filled from type->settings */
    int64_t max_in_flight; /* deliveries at once in this sink */
    char *place;           /* FILE:LINE:COLUMN of the sink, for messages */
};

/* Names of the table's columns; NULL = not mapped. `id` is always set. */
struct column_map {
    char *id, *key, *type, *payload, *headers, *event_id, *traceparent, *created_at, *not_before, *after, *priority;
};

struct queue_config {
    char *name;
    char *preset; /* relay/config/config_preset.h; NULL = none */
    char *table;  /* [schema.]table, unquoted, as one would write it in SQL without quotes */
    struct column_map columns;
    char *where;       /* extra SQL predicate over the table's columns, or NULL */
    char *ordering;    /* strategy name */
    bool unordered;    /* it is one without keys: the key is only sent. Not a setting */
    int locks;         /* enum locks: what keeps others away from an event that has no key */
    char *sink;        /* name of a sink */
    char *destination; /* template: text with {key} {type} {id} {COLUMN}; NULL if the sink needs none */
    int after;         /* enum after */
    int delayed;       /* enum delayed */
    char *window;      /* "HH:MM-HH:MM", when it may claim; NULL: always */
    char *window_zone; /* whose clock that is */
    int64_t archive_retention_us, dead_retention_us; /* 0 = for ever */
    char *then;                                      /* name of the queue that gets what was delivered, or NULL */
    const struct queue_config *next;                 /* the queue of that name, or NULL */
    int then_payload;                                /* enum then_payload: what it gets as payload */
    int64_t response_max;                            /* bytes of an answer that goes on; 0: none does. Not a setting */

    int64_t retry_base_us, retry_max_us, retry_attempts;
    int on_exhausted; /* enum on_exhausted */

    int64_t lease_us; /* with `ordering: lease`: how long a key is ours without being renewed */
    int lease_owner;  /* enum lease_owner: what the leases end with, besides */

    int64_t connections;        /* claims open at once */
    int64_t keys_per_claim;     /* advisory locks a claim takes at a time */
    int64_t max_events_per_key; /* of one key in one claim */
    int64_t max_batch_bytes;    /* of payload and headers held for one claim; one larger row goes alone */
    int64_t max_event_bytes;    /* larger events become dead letters; 0 = no limit */
    int64_t latency_us;         /* in which half the events are claimed, while many come */
    int64_t poll_max_us;        /* between looks at the table while it is empty */
    int64_t oldest_share;       /* percent of the places in a claim that go to the oldest end */
    int64_t lock_class;         /* first half of the advisory lock; 0 = from the table's name */
    int64_t rate;               /* events a second, at most; 0 = no limit. Not a setting: see replay.h */
    unsigned keys_oid;          /* a replay: the table whose keys it has, else 0. Not a setting */
    bool unnoted;               /* a replay: nobody notes its name for SQL, nor needs a right to. Not a setting */
    const char *state;          /* schema of the tables parked and dead, as SQL; NULL = outbox. Not a setting */

    char *place; /* FILE:LINE:COLUMN of the queue, for messages */
};

struct config {
    char *path;
    char *database;        /* libpq connection string */
    char *listen_database; /* for the waking connection, when `database` is a pooler; NULL = database */
    int prepared;          /* enum prepared */
    int64_t shutdown_timeout_us;
    int64_t statement_timeout_us;
    int64_t stats_interval_us; /* between queue.stats log lines; 0 = only at the end */
    struct sink_config *sinks;
    size_t sink_count;
    struct queue_config *queues;
    size_t queue_count;
    struct config_mark *marks; /* relay/config/config_mark.h */
    size_t mark_count;
};

/* NULL and *err (ERROR_CONFIG, or ERROR_PERMISSION when the file may not be read) on failure. Does not connect to
 * anything. The result is the caller's: config_free(). */
struct config *config_load(const char *path, struct error *err) MUST_CHECK;
void config_free(struct config *config); /* NULL is a no-op; wipes secrets */

/* `ordering: lease` */
bool config_leases(const struct queue_config *queue);

/* The one that somebody has named; NULL and *err (ERROR_USAGE, with the names that there are) if there is none. */
const struct queue_config *config_queue(const struct config *config, const char *name, struct error *err) MUST_CHECK;

/* NULL if there is none. */
const struct sink_config *config_sink(const struct config *config, const char *name);

/* docs/configuration.md, from the same tables that the parser uses. */
void config_print_reference(FILE *out);
