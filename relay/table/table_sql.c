#include "relay/table/table_sql.h"

#include "relay/table/table_literal.h"
#include "relay/table/table_read_sql.h"
#include "sql_text.h"

#include <assert.h>
#include <stdlib.h>

/* The one way in which a name becomes a regclass, and it takes quoted names only: PostgreSQL reads a name in a literal
 * as it reads one in a statement, and folds to lower case what is not quoted. */
static const char *regclass(struct arena *arena, const char *name_sql)
{
    return arena_printf(arena, "%s::pg_catalog.regclass", table_literal(arena, name_sql));
}

/* Dead letter d is one that an event comes after which is the next of its key and waits. */
static const char *needed(const struct table *table, const struct queue_config *queue, struct arena *arena)
{
    if (!table->after_sql)
        return "false";
    return arena_printf(
        arena,
        "d.event_id in (select a.id from %s.parked p cross join lateral (select %s as ids from %s e "
        "where e.%s between p.event_id and p.event_id order by e.%s offset 0) as o cross join pg_catalog.unnest(o.ids) "
        "as a (id) where p.queue = %s and p.after_id is not null and a.id is not null)",
        queue->state ? queue->state : "outbox", table_after_ids(table, arena), table->name_sql, table->id_sql,
        table->id_sql, table_literal(arena, queue->name));
}

/* What is not due is left out everywhere, as if it was not there. */
static const char *condition(const struct table *table, const struct queue_config *queue, bool guarded,
                             struct arena *arena)
{
    const char *where = table_own_rows(table, queue, guarded, arena);
    if (!table_passes_delayed(table, queue))
        return where;
    return arena_printf(arena, "(%s) and (e.%s is null or e.%s <= pg_catalog.statement_timestamp())", where,
                        table->not_before_sql, table->not_before_sql);
}

static const char *key_type_name(enum key_type type)
{
    static const char *const names[] = {[KEY_NONE] = "text",
                                        [KEY_BIGINT] = "bigint",
                                        [KEY_INTEGER] = "bigint",
                                        [KEY_TEXT] = "text",
                                        [KEY_UUID] = "uuid"};
    return names[type];
}

/* Key k.name's ids from `from` on, in one walk of an index on (key, id). */
static const char *walk_of_key(struct arena *arena, const char *key, const char *id, const char *type, const char *from)
{
    return arena_printf(arena, "(%s, %s) >= (k.name::%s, %s) and (%s, %s) <= (k.name::%s, 9223372036854775807)", key,
                        id, type, from, key, id, type);
}

/* With an index on (key, id) a row comparison can be served by that index alone; with one on the key, equality and an
 * order that the primary key cannot give keep the planner from walking the whole table by id. */
static void key_range(const struct table *table, struct arena *arena, const char *key, const char *id,
                      const char **ret_range, const char **ret_order)
{
    const char *type = key_type_name(table->key_type), *floor = "least($2::bigint, p.event_id, l.id)";
    if (table->index_key_id) {
        *ret_range = walk_of_key(arena, key, id, type, floor);
        *ret_order = arena_printf(arena, "%s, %s", key, id);
    } else {
        *ret_range = arena_printf(arena, "%s = k.name::%s and %s >= %s", key, type, id, floor);
        *ret_order = arena_printf(arena, "%s + 0", id);
    }
}

/* Without an index on the key all ids are read in any case, and the first that is one of its is found. */
static void all_of_key(const struct table *table, struct arena *arena, const char *key, const char *id,
                       const char **ret_all, const char **ret_order)
{
    const char *type = key_type_name(table->key_type);
    *ret_all = table->index_key_id ? walk_of_key(arena, key, id, type, "'-9223372036854775808'::bigint")
                                   : arena_printf(arena, "%s = k.name::%s", key, type);
    *ret_order = table->index_key_id ? arena_printf(arena, "%s, %s", key, id)
                 : table->index_key  ? arena_printf(arena, "%s + 0", id)
                                     : id;
}

static const char *rendered(struct arena *arena, const char *template, const struct sql_variable *variables)
{
    struct error err;
    char *text = sql_render(template, variables, &err);
    assert(text && "tests/unit/table/table_sql_test.c renders all of them");
    const char *out = arena_printf(arena, "%s", text);
    free(text);
    return out;
}

/* The shared rule is written over :key and :id; in the claim these are the chosen key's. */
static const char *lock_hash(const struct table *table, struct arena *arena)
{
    const struct sql_variable chosen[] = {{"key", "k.key"}, {"id", "k.keyless"}, {NULL, NULL}};
    return arena_printf(arena, "case when k.keyless is null then %s else %s end",
                        rendered(arena, table_lock_hash(table), chosen),
                        rendered(arena, table_lock_hash_keyless(), chosen));
}

static const char *parked_key(const struct table *table, struct arena *arena)
{
    const struct sql_variable of_entry[] = {{"text", "p.key"}, {NULL, NULL}};
    return rendered(arena, table_key_of_text(table), of_entry);
}

/* What a key's entry p covers: the events that it points at, and those of the key that come after it. Without an index
 * to find them by, only the one that it points at. */
static const char *behind_entry(const struct table *table, struct arena *arena, const char *key, const char *id,
                                const char *parked_key)
{
    if (!table->index_key_id)
        return arena_printf(arena, "%s between p.event_id and p.event_id", id);
    return arena_printf(arena, "%s = %s and %s >= p.event_id", key, parked_key, id);
}

/* Of what lock_ids.sql has found of key f: an event before that is not settled. Looked for from it backwards: in a
 * flood of one key the answer is the entry beside it, and not behind those of all that has been delivered of the key.
 */
static const char *late(const struct table *table, struct arena *arena, const char *key, const char *id,
                        const char *where)
{
    return arena_printf(arena,
                        "f.keyless is null and exists (select from %s e where (%s, %s) >= (f.key, $10::bigint)"
                        " and (%s, %s) < (f.key, f.low) and (%s) order by %s desc, %s desc offset 0)",
                        table->name_sql, key, id, key, id, where, key, id);
}

#define NEXT_VARIABLES 7

/* What goes on to the next queue: one column of its table, and what stands in it, over `e`, or over the answer `r`. */
struct handed {
    const char *name, *column_sql, *value, *response;
};

/* An answer comes as bytes. What is written as jsonb has to be cast: nothing else is assigned to it. */
static const char *response_value(const struct table *next)
{
    if (next->payload_kind == PAYLOAD_BYTES)
        return "r.response";
    if (next->payload_kind == PAYLOAD_TEXT)
        return "pg_catalog.convert_from(r.response, 'UTF8')";
    return next->payload_is_jsonb ? "pg_catalog.convert_from(r.response, 'UTF8')::jsonb"
                                  : "pg_catalog.convert_from(r.response, 'UTF8')::json";
}

static const char responses[] = " join rows from (pg_catalog.unnest($1::bigint[]), pg_catalog.unnest($3::bytea[]))"
                                " as r (id, response) on r.id = g.id";

/* The variables of settle_next.sql; empty without a next queue. An id, an event_id and a created_at of its own the new
 * event gets from its table. */
static struct sql_variable *next_variables(const struct table *table, const struct queue_config *queue,
                                           struct arena *arena)
{
    const struct table *next = table->next;
    struct sql_variable *out = arena_array(arena, NEXT_VARIABLES + 1, sizeof *out);
    if (!next)
        return out;
    const struct handed handed[] = {
        {"key", table_sent_key(next), table_column(arena, table_sent_key(table), NULL), NULL},
        {"type", next->type_sql, table_column(arena, table->type_sql, NULL), NULL},
        {"payload", next->payload_sql, table_column(arena, table->payload_sql, "pg_catalog.row_to_json(e.*)"),
         queue->then_payload == THEN_RESPONSE ? response_value(next) : NULL},
        {"headers", next->headers_sql, table_column(arena, table->headers_sql, NULL), NULL},
        {"traceparent", next->traceparent_sql, table_column(arena, table->traceparent_sql, NULL), NULL},
    };
    const char *columns = "", *names = "", *values = "", *taken = "";
    for (size_t i = 0; i < sizeof handed / sizeof handed[0]; i++) {
        const struct handed *h = &handed[i];
        if (!h->column_sql || !h->value)
            continue;
        const char *comma = *columns ? ", " : "";
        if (!h->response)
            taken = arena_printf(arena, "%s, %s as %s", taken, h->value, h->name);
        columns = arena_printf(arena, "%s%s%s", columns, comma, h->column_sql);
        names = arena_printf(arena, "%s%s%s", names, comma, table_literal(arena, h->column_sql));
        values = h->response ? arena_printf(arena, "%s%s%s", values, comma, h->response)
                             : arena_printf(arena, "%s%sg.%s", values, comma, h->name);
    }
    out[0] = (struct sql_variable){"handed", taken};
    out[1] = (struct sql_variable){"next_table", next->name_sql};
    out[2] = (struct sql_variable){"next_columns", columns};
    out[3] = (struct sql_variable){"next_names", names};
    out[4] = (struct sql_variable){"next_values", values};
    out[5] = (struct sql_variable){"responses", queue->then_payload == THEN_RESPONSE ? responses : ""};
    out[6] = (struct sql_variable){"next_table_name", table_literal(arena, next->plain_name)};
    return out;
}

/* How a claim locks key k.key, or event k.keyless. A row is looked up as everything there is, see lock_ids.sql; of an
 * event that waited and is gone there is none, and whoever finds its entry first removes that. The lock that is shared
 * is for those who ask what is under way. */
static const char *try_lock(const struct table *table, const struct queue_config *queue, struct arena *arena)
{
    int class = (int)table->lock_class;
    if (!queue->unordered || queue->locks == LOCKS_ADVISORY)
        return arena_printf(arena, "pg_catalog.pg_try_advisory_xact_lock(%d, %s)", class,
                            queue->unordered ? "pg_catalog.hashint8(k.keyless)" : lock_hash(table, arena));
    const char *row =
        arena_printf(arena, "select from %s e where e.%s between k.keyless and k.keyless order by e.%s offset 0",
                     table->name_sql, table->id_sql, table->id_sql);
    return arena_printf(arena,
                        "(exists (%s for update skip locked) and "
                        "pg_catalog.pg_try_advisory_xact_lock_shared(%d, 0) is not null or not exists (%s))",
                        row, class, row);
}

/* What is wanted of a delivered row, besides its id. */
static const char *taken(const struct queue_config *queue, const char *key, const char *created_at, const char *handed,
                         struct arena *arena)
{
    if (queue->after != AFTER_ARCHIVE)
        return handed;
    return arena_printf(arena,
                        ", (%s)::text as archive_key, (%s)::timestamptz as created_at, "
                        "pg_catalog.row_to_json(e.*) as original%s",
                        key, created_at, handed);
}

/* How delivered rows leave the table, and what is taken of them. */
static const char *deleted(const char *template, const struct table *table, const struct queue_config *queue,
                           const char *handed, struct arena *arena)
{
    const char *key = table_column(arena, table->key_sql, "null::text"),
               *created_at = table_column(arena, table->created_at_sql, "null");
    const struct sql_variable variables[] = {{"table", table->name_sql},
                                             {"table_class", regclass(arena, table->name_sql)},
                                             {"id", table_column(arena, table->id_sql, NULL)},
                                             {"taken", taken(queue, key, created_at, handed, arena)},
                                             {NULL, NULL}};
    return rendered(arena, template, variables);
}

static const struct sql_variable *variables_of(const struct table *table, const struct queue_config *queue,
                                               bool guarded, struct arena *arena)
{
    const char *id = table_column(arena, table->id_sql, NULL);
    const char *key = table_column(arena, table->key_sql, "null::text");
    const char *range = NULL, *order = NULL, *all = NULL, *all_order = NULL;
    key_range(table, arena, key, id, &range, &order);
    all_of_key(table, arena, key, id, &all, &all_order);
    const char *state = queue->state ? queue->state : "outbox",
               *feeds = table->sequence_sql ? table->sequence_sql : table->name_sql;
    const char *class = regclass(arena, table->name_sql);
    const char *created_at = table_column(arena, table->created_at_sql, "null");
    const char *where = condition(table, queue, guarded, arena);
    const struct sql_variable *next = next_variables(table, queue, arena);
    const char *handed = table->next ? next->text : ""; /* the first of them */
    const struct sql_variable variables[] = {
        {"table", table->name_sql},
        {"table_name", table_literal(arena, table->plain_name)},
        {"table_class", class},
        {"deleted", deleted(sql_deleted_by_id, table, queue, handed, arena)},
        {"placed", deleted(sql_deleted_by_place, table, queue, handed, arena)},
        {"where", where},
        {"late", late(table, arena, key, id, where)},
        {"more", "l.ok and l.high > l.low"},
        {"behind_entry", behind_entry(table, arena, key, id, parked_key(table, arena))},
        {"in_order", queue->where ? "" : arena_printf(arena, "order by %s", id)},
        {"in_range", queue->where ? "true" : arena_printf(arena, "%s between r.lo and r.hi", id)},
        {"undone", table->after_sql ? table_own_rows(table, queue, guarded, arena) : "true"},
        {"lives", table->after_sql ? "true" : "false"},
        {"queue_name", table_literal(arena, queue->name)},
        {"state", state},
        {"parked_class", regclass(arena, arena_printf(arena, "%s.parked", state))},
        {"id", id},
        {"key", key},
        {"type", table_column(arena, table->type_sql, "null")},
        {"created_at", created_at},
        {"not_before", table_column(arena, table->not_before_sql, "null::timestamptz")},
        {"key_type", key_type_name(table->key_type)},
        {"priority", table_column(arena, table->priority_sql, "null::bigint")},
        {"try_lock", try_lock(table, queue, arena)},
        {"lock_class", arena_printf(arena, "%d", (int)table->lock_class)},
        {"parked_key", parked_key(table, arena)},
        {"lock_hash", lock_hash(table, arena)},
        {"columns", table_event_columns(table, queue, guarded, arena)},
        {"needed", needed(table, queue, arena)},
        {"text_once", table_text_once(table, queue, guarded, arena)},
        {"key_range", range},
        {"key_order", order},
        {"key_all", all},
        {"key_all_order", all_order},
        {"sequence", feeds},
        {"sequence_class", regclass(arena, feeds)},
        {"holders_of", regclass(arena, feeds)},
        {"drawn_further", table->sequence_sql
                              ? arena_printf(arena, "(select q.last_value from %s q) <> $1::bigint", feeds)
                              : "$1::bigint is not null"},
        {NULL, NULL},
    };
    return sql_variables_with(next, variables, arena);
}

const struct sql_variable *table_variables(const struct table *table, const struct queue_config *queue,
                                           struct arena *arena)
{
    return variables_of(table, queue, false, arena);
}

const struct sql_variable *table_guarded_variables(const struct table *table, const struct queue_config *queue,
                                                   struct arena *arena)
{
    return variables_of(table, queue, true, arena);
}
