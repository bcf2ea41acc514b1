#include "relay/table/table_read_sql.h"

#include "relay/table/table_literal.h"

#include <inttypes.h>

static const char *as_text(struct arena *arena, const char *name_sql)
{
    return name_sql ? arena_printf(arena, "e.%s::text", name_sql) : "null::text";
}

static const char *payload(const struct table *table, struct arena *arena)
{
    if (!table->payload_sql)
        return "pg_catalog.row_to_json(e.*)::text"; /* e alone would be a column of that name */
    return table->payload_kind == PAYLOAD_BYTES ? table_column(arena, table->payload_sql, NULL)
                                                : as_text(arena, table->payload_sql);
}

/* In a transaction that has named rows that cannot be read (ordering_guard()) whether e is one of them. */
static const char *unreadable(const struct table *table, struct arena *arena)
{
    return arena_printf(arena,
                        "e.%s::bigint = any ((select nullif(pg_catalog.current_setting('courier.unreadable', true), "
                        "''))::bigint[])",
                        table->id_sql);
}

/* The queue's own condition. Of a row that cannot be read nobody knows whether it meets that: it is held. */
const char *table_own_rows(const struct table *table, const struct queue_config *queue, bool guarded,
                           struct arena *arena)
{
    if (!queue->where || !guarded)
        return queue->where ? queue->where : "true";
    return arena_printf(arena, "case when %s then true else (%s) end", unreadable(table, arena), queue->where);
}

/* Microseconds until the event is due; null: it is. After a hundred years the relay may look again. */
static const char *delay(const struct table *table, struct arena *arena)
{
    const char *at = table->not_before_sql;
    return arena_printf(arena,
                        "case when e.%s = 'infinity' then -1::bigint when e.%s > pg_catalog.statement_timestamp() then "
                        "(extract(epoch from least(e.%s, pg_catalog.statement_timestamp() + interval '36500 days') - "
                        "pg_catalog.statement_timestamp()) * 1000000)::bigint end",
                        at, at, at);
}

const char *table_after_ids(const struct table *table, struct arena *arena)
{
    return arena_printf(arena, table->after_is_array ? "e.%s::bigint[]" : "array[e.%s::bigint]", table->after_sql);
}

/* The event that this one comes again after, while it is there, whoever serves it. */
static const char *earlier(const struct table *table, struct arena *arena)
{
    const char *id = table->id_sql;
    return arena_printf(arena,
                        "case when e.again_after is not null then (select o.%s from %s o where o.%s between "
                        "e.again_after and e.again_after order by o.%s offset 0) end",
                        id, table->name_sql, id, id);
}

/* The first of the events that this one comes after and that are not done: they are in the queue, or dead letters. What
 * comes before it in its key is done first anyway. */
static const char *undone(const struct table *table, const struct queue_config *queue, bool guarded,
                          struct arena *arena)
{
    const char *ids = table_after_ids(table, arena);
    const char *id = table->id_sql, *own = "", *other = "";
    if (table->key_sql) {
        own = arena_printf(arena, ", e.%s as key", table->key_sql);
        other = arena_printf(arena, " and (e.%s <> o.key or e.%s >= o.id) is not false", table->key_sql, id);
    }
    return arena_printf(
        arena,
        "(select a.id from (select e.%s as id%s) as o cross join pg_catalog.unnest(%s) as a (id) "
        "where exists (select from %s e where e.%s between a.id and a.id and (%s)%s order by e.%s offset 0) "
        "or exists (select from %s.dead d where d.queue = %s and d.event_id = a.id) order by a.id limit 1)",
        id, own, ids, table->name_sql, id, table_own_rows(table, queue, guarded, arena), other, id,
        queue->state ? queue->state : "outbox", table_literal(arena, queue->name));
}

static const char *waited_for(const struct table *table, const struct queue_config *queue, bool guarded,
                              struct arena *arena)
{
    if (!table->after_sql)
        return earlier(table, arena);
    const char *named = undone(table, queue, guarded, arena);
    return table->comes_again ? arena_printf(arena, "coalesce(%s, %s)", earlier(table, arena), named) : named;
}

/* Null where the row cannot be read. */
static const char *readable(const char *sql, bool guarded, struct arena *arena)
{
    return guarded ? arena_printf(arena, "case when courier_guard.courier_unreadable then null else %s end", sql) : sql;
}

/* JSON is turned into text each time that the text is asked for. */
static bool makes_text_once(const struct table *table, const struct queue_config *queue)
{
    return queue->max_event_bytes > 0 && table->payload_kind == PAYLOAD_JSON;
}

/* Joined with e. No column of the table is likely to have that name, and the queue's condition may name any of them. */
const char *table_text_once(const struct table *table, const struct queue_config *queue, bool guarded,
                            struct arena *arena)
{
    const char *guard = "";
    if (guarded)
        guard = arena_printf(arena, " cross join lateral (select %s as courier_unreadable offset 0) as courier_guard",
                             unreadable(table, arena));
    return makes_text_once(table, queue)
               ? arena_printf(arena, "%s cross join lateral (select %s as courier_payload offset 0) as courier", guard,
                              readable(payload(table, arena), guarded, arena))
               : guard;
}

/* The columns of per_key_read.sql from id on. */
const char *table_event_columns(const struct table *table, const struct queue_config *queue, bool guarded,
                                struct arena *arena)
{
    const char *body = payload(table, arena), *oversize = "null::bigint";
    if (makes_text_once(table, queue))
        body = "courier.courier_payload";
    if (queue->max_event_bytes > 0) {
        oversize = arena_printf(
            arena, "case when pg_catalog.octet_length(%s) > %" PRId64 " then pg_catalog.octet_length(%s)::bigint end",
            body, queue->max_event_bytes, body);
        body = arena_printf(arena, "case when pg_catalog.octet_length(%s) <= %" PRId64 " then %s end", body,
                            queue->max_event_bytes, body);
    }
    const char *created =
        table->created_at_sql ? arena_printf(arena, "e.%s::timestamptz", table->created_at_sql) : "null::timestamptz";
    char *out =
        arena_printf(arena,
                     "e.%s::bigint as id, %s as created_at, %s as oversize, %s as key, %s as type, "
                     "%s as payload, %s as headers, %s as event_id, %s as traceparent, e.ctid as tid",
                     table->id_sql, readable(created, guarded, arena), readable(oversize, guarded, arena),
                     as_text(arena, table_sent_key(table)), readable(as_text(arena, table->type_sql), guarded, arena),
                     readable(body, guarded, arena), readable(as_text(arena, table->headers_sql), guarded, arena),
                     readable(as_text(arena, table->event_id_sql), guarded, arena),
                     readable(as_text(arena, table->traceparent_sql), guarded, arena));
    for (size_t i = 0; i < table->extra_count; i++)
        out = arena_printf(arena, "%s, %s as extra_%zu", out,
                           readable(as_text(arena, table->extra_sql[i]), guarded, arena), i);
    if (table_holds_delayed(table, queue))
        out = arena_printf(arena, "%s, %s as delay_us", out, readable(delay(table, arena), guarded, arena));
    if (table_passes_delayed(table, queue))
        out = arena_printf(arena, "%s, case when e.%s is not null then 1::bigint end as overtaken", out,
                           table->not_before_sql);
    if (table_comes_after(table))
        out = arena_printf(arena, "%s, %s as after_id", out,
                           readable(waited_for(table, queue, guarded, arena), guarded, arena));
    if (guarded)
        out = arena_printf(arena, "%s, courier_guard.courier_unreadable::integer::bigint as unreadable", out);
    return out;
}
