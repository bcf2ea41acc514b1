/* relay/table/table.h -- what the relay knows of a queue's table, read from the catalogue.
 *
 *   table_inspect -> table_check -> (claim and settle use the struct) -> table_free
 *
 * Nothing here changes the table. */
#pragma once

#include "relay/base/error.h"
#include "relay/base/event.h"
#include "relay/config/config.h"
#include "relay/table/findings.h"

#include <libpq-fe.h>

enum key_type { KEY_NONE, KEY_BIGINT, KEY_INTEGER, KEY_TEXT, KEY_UUID };

struct table {
    unsigned oid;
    unsigned
        keys_oid; /* of the table whose keys its locks are: its own, but for a replay. 0: no locks of keys are taken */
    int id_attnum, key_attnum, not_before_attnum, after_attnum, priority_attnum; /* -1: not mapped */
    char *name_sql;   /* "public"."events": quoted, schema-qualified */
    char *plain_name; /* public.events, for messages and for the lock class */
    /* Quoted column names; NULL when not mapped. id_sql is always set. */
    char *id_sql, *key_sql, *type_sql, *payload_sql, *headers_sql, *event_id_sql, *traceparent_sql, *created_at_sql,
        *not_before_sql, *after_sql, *priority_sql;
    char *sent_key_sql; /* the key of an unordered queue, where key_sql is NULL: it is only sent */
    enum key_type key_type;
    bool key_nullable;
    bool key_loose;                 /* its collation takes texts of different bytes for equal */
    enum payload_kind payload_kind; /* PAYLOAD_JSON when no payload column is mapped */
    bool payload_is_jsonb;
    bool after_is_array;
    bool comes_again;               /* outbox.events without an order: what came again waits, by its again_after */
    enum payload_kind headers_kind; /* PAYLOAD_TEXT: a text column, which may hold anything */
    bool index_key_id;              /* a valid, non-partial btree index that starts (key, id) */
    bool index_key;                 /* one that starts with key */
    bool index_priority;            /* one that starts (priority desc, id) */
    bool index_id;                  /* a valid unique btree index on exactly (id) */
    bool places;                    /* no partitions, children or triggers that could keep a row from being deleted */
    char *sequence_sql;             /* quoted name of the sequence that feeds id, or NULL; readable by us */
    /* The extra columns that the destination template names, in order of first use: quoted, and as the template has
     * them. */
    char **extra_sql, **extra_names;
    size_t extra_count;
    int32_t lock_class; /* first half of the advisory locks */
    struct table *next; /* of the queue that gets what was delivered; NULL: there is none */
};

/* The column that is sent as the key; NULL: none is. */
static inline const char *table_sent_key(const struct table *table)
{
    return table->key_sql ? table->key_sql : table->sent_key_sql;
}

/* Blocking; for start-up, doctor and tests. NULL and *err when the table or a mapped column does not exist or has a
 * type that cannot serve (ERROR_CONFIG), or the connection failed (ERROR_UNREACHABLE). */
struct table *table_inspect(PGconn *conn, const struct queue_config *queue, struct error *err) MUST_CHECK;
void table_free(struct table *table);

/* The second half of the advisory lock, as a statement for sql_render(): an int4 expression over :key, or over :id for
 * events without a key, e.g. "hashint8(:key)". Whoever locks a key uses this. Static. */
const char *table_lock_hash(const struct table *table);
const char *table_lock_hash_keyless(void);

/* The key that a text stands for, as a statement for sql_render(): an expression over :text; null when PostgreSQL would
 * not write any key of this column like that. What is remembered of a key may be older than its column's type. Static.
 */
const char *table_key_of_text(const struct table *table);

/* Its events may be delayed, and one that is keeps the later ones of its key back. */
static inline bool table_holds_delayed(const struct table *table, const struct queue_config *queue)
{
    return table->not_before_sql && queue->delayed == DELAYED_HOLD;
}

/* Its events may be delayed, and one that is lets the later ones of its key pass. */
static inline bool table_passes_delayed(const struct table *table, const struct queue_config *queue)
{
    return table->not_before_sql && queue->delayed == DELAYED_PASS;
}

/* Its events may have to wait for others to be done. */
static inline bool table_comes_after(const struct table *table)
{
    return table->after_sql || table->comes_again;
}

/* Everything that would break a guarantee is an error, what only costs speed a warning. False only when a query
 * failed; findings are not failures. */
bool table_check(PGconn *conn, const struct queue_config *queue, const struct table *table, struct findings *ret,
                 struct error *err) MUST_CHECK;

/* A connection with stragglers may come to hold so many times keys_per_claim locks. */
#define CLAIM_LOCKS_FACTOR 2

/* How many advisory locks its claims may come to hold at once, and the max_locks_per_transaction that makes this half
 * of the server's lock table. Whoever holds more than half may keep the locks from others. */
int64_t table_locks_wanted(const struct queue_config *queue);
int64_t table_locks_needed(int64_t wanted, int64_t slots, int64_t per_transaction);

/* Two queues over one table, by whatever names, or over a table and a part of it: each needs a condition that leaves
 * the other's rows alone, and both the same locks. False and *err (ERROR_CONFIG) when that is not so; another kind:
 * the database failed. Blocking. */
bool table_check_shared(PGconn *conn, const struct queue_config *queue, const struct table *table,
                        const struct queue_config *other, const struct table *other_table,
                        struct error *err) MUST_CHECK;
