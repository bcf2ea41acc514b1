#include "relay/table/table.h"

#include "relay/base/arena.h"
#include "relay/base/suggest.h"
#include "relay/config/config_tables.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define IDENTIFIER_MAX 64 /* NAMEDATALEN */

enum column_use { USE_ID, USE_KEY, USE_PAYLOAD, USE_HEADERS, USE_TIME, USE_INSTANT, USE_AFTER, USE_PRIORITY, USE_ANY };

/* The types that serve a use, and what they are to us: a key_type or a payload_kind. */
static const struct {
    enum column_use use;
    const char *type;
    int value;
} type_rules[] = {
    {USE_ID, "bigint", 0},
    {USE_ID, "integer", 0},
    {USE_ID, "smallint", 0},
    {USE_KEY, "bigint", KEY_BIGINT},
    {USE_KEY, "integer", KEY_INTEGER},
    {USE_KEY, "smallint", KEY_INTEGER},
    {USE_KEY, "text", KEY_TEXT},
    {USE_KEY, "character varying", KEY_TEXT},
    {USE_KEY, "uuid", KEY_UUID},
    {USE_PAYLOAD, "json", PAYLOAD_JSON},
    {USE_PAYLOAD, "jsonb", PAYLOAD_JSON},
    {USE_PAYLOAD, "text", PAYLOAD_TEXT},
    {USE_PAYLOAD, "character varying", PAYLOAD_TEXT},
    {USE_PAYLOAD, "bytea", PAYLOAD_BYTES},
    {USE_HEADERS, "json", PAYLOAD_JSON},
    {USE_HEADERS, "jsonb", PAYLOAD_JSON},
    {USE_HEADERS, "text", PAYLOAD_TEXT},
    {USE_TIME, "timestamp with time zone", 0},
    {USE_TIME, "timestamp without time zone", 0},
    {USE_INSTANT, "timestamp with time zone", 0},
    {USE_AFTER, "bigint", false},
    {USE_AFTER, "integer", false},
    {USE_AFTER, "bigint[]", true},
    {USE_AFTER, "integer[]", true},
    {USE_PRIORITY, "bigint", 0},
    {USE_PRIORITY, "integer", 0},
    {USE_PRIORITY, "smallint", 0},
};

#define RULES (sizeof type_rules / sizeof type_rules[0])

/* Where the configuration names a column, and where its quoted name goes. */
static const struct mapping {
    const char *setting;
    size_t config_offset, table_offset;
    enum column_use use;
} mappings[] = {
    {"id", offsetof(struct column_map, id), offsetof(struct table, id_sql), USE_ID},
    {"key", offsetof(struct column_map, key), offsetof(struct table, key_sql), USE_KEY},
    {"type", offsetof(struct column_map, type), offsetof(struct table, type_sql), USE_ANY},
    {"payload", offsetof(struct column_map, payload), offsetof(struct table, payload_sql), USE_PAYLOAD},
    {"headers", offsetof(struct column_map, headers), offsetof(struct table, headers_sql), USE_HEADERS},
    {"event_id", offsetof(struct column_map, event_id), offsetof(struct table, event_id_sql), USE_ANY},
    {"traceparent", offsetof(struct column_map, traceparent), offsetof(struct table, traceparent_sql), USE_ANY},
    {"created_at", offsetof(struct column_map, created_at), offsetof(struct table, created_at_sql), USE_TIME},
    {"not_before", offsetof(struct column_map, not_before), offsetof(struct table, not_before_sql), USE_INSTANT},
    {"after", offsetof(struct column_map, after), offsetof(struct table, after_sql), USE_AFTER},
    {"priority", offsetof(struct column_map, priority), offsetof(struct table, priority_sql), USE_PRIORITY},
};

#define MAPPINGS (sizeof mappings / sizeof mappings[0])

/* The catalogue's answer while it is read. Columns: see sql/table/table_columns.sql. */
struct inspection {
    PGconn *conn;
    const struct queue_config *queue;
    struct table *table;
    PGresult *columns;
};

enum { COLUMN_ATTNUM, COLUMN_NAME, COLUMN_SQL, COLUMN_TYPE, COLUMN_NOT_NULL, COLUMN_LOOSE };

const char *table_lock_hash(const struct table *table)
{
    static const char *const hashes[] = {[KEY_NONE] = "pg_catalog.hashint8(:id)",
                                         [KEY_BIGINT] = "pg_catalog.hashint8(:key)",
                                         [KEY_INTEGER] = "pg_catalog.hashint8(:key)",
                                         [KEY_TEXT] = "pg_catalog.hashtext(:key::text)",
                                         [KEY_UUID] = "pg_catalog.hashtext(:key::text)"};
    return hashes[table->key_type];
}

const char *table_lock_hash_keyless(void)
{
    return "pg_catalog.hashint8(:id)";
}

/* A cast that fails would fail the whole statement, for all keys. */
const char *table_key_of_text(const struct table *table)
{
    static const char number[] = "case when :text ~ '^(0|-?[1-9][0-9]{0,17})$' then :text::bigint "
                                 "when :text ~ '^-?[1-9][0-9]{18}$' then case when :text::numeric between "
                                 "-9223372036854775808 and 9223372036854775807 then :text::bigint end end";
    static const char uuid[] = "case when :text ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then :text::uuid end";
    static const char *const keys[] = {
        [KEY_NONE] = ":text", [KEY_BIGINT] = number, [KEY_INTEGER] = number, [KEY_TEXT] = ":text", [KEY_UUID] = uuid};
    return keys[table->key_type];
}

/* Number of the row in in->columns, or -1. An exact match goes before one in lower case, as SQL folds it. */
static int column_row(const struct inspection *in, const char *name)
{
    char folded[IDENTIFIER_MAX];
    size_t n = 0;
    for (; name[n] && n + 1 < sizeof folded; n++)
        folded[n] = (char)tolower((unsigned char)name[n]);
    folded[n] = '\0';
    int found = -1;
    for (int row = 0; row < PQntuples(in->columns); row++) {
        const char *column = query_text(in->columns, row, COLUMN_NAME);
        if (strcmp(column, name) == 0)
            return row;
        if (strcmp(column, folded) == 0)
            found = row;
    }
    return found;
}

static bool no_such_column(const struct inspection *in, const char *used_by, const char *name, struct error *err)
{
    int count = PQntuples(in->columns);
    const char **names = memory_array((size_t)count + 1, sizeof *names);
    for (int row = 0; row < count; row++)
        names[row] = query_text(in->columns, row, COLUMN_NAME);
    char hint[IDENTIFIER_MAX + 32];
    error_set(err, ERROR_CONFIG, "%s: table %s has no column \"%s\" (%s)%s", in->queue->place, in->table->plain_name,
              name, used_by, suggest_text(name, names, hint, sizeof hint));
    free(names);
    return false;
}

static bool wrong_type(const struct inspection *in, const struct mapping *mapping, int row, struct error *err)
{
    char list[160] = "";
    for (size_t i = 0; i < RULES; i++)
        if (type_rules[i].use == mapping->use)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? ", " : "", type_rules[i].type);
    return error_set(err, ERROR_CONFIG, "%s: column \"%s\" of %s is of type %s and cannot serve as %s; give one of: %s",
                     in->queue->place, query_text(in->columns, row, COLUMN_NAME), in->table->plain_name,
                     query_text(in->columns, row, COLUMN_TYPE), mapping->setting, list);
}

static bool type_value(enum column_use use, const char *type, int *ret)
{
    for (size_t i = 0; i < RULES; i++)
        if (type_rules[i].use == use && strcmp(type_rules[i].type, type) == 0) {
            *ret = type_rules[i].value;
            return true;
        }
    *ret = 0;
    return use == USE_ANY;
}

/* What the table keeps of a column beyond its name. */
static void note_column(struct inspection *in, const struct mapping *mapping, int row, int value)
{
    int attnum = (int)query_int(in->columns, row, COLUMN_ATTNUM);
    switch (mapping->use) {
    case USE_ID:
        in->table->id_attnum = attnum;
        break;
    case USE_KEY:
        in->table->key_attnum = attnum;
        in->table->key_type = (enum key_type)value;
        in->table->key_nullable = !query_bool(in->columns, row, COLUMN_NOT_NULL);
        in->table->key_loose = query_bool(in->columns, row, COLUMN_LOOSE);
        break;
    case USE_PAYLOAD:
        in->table->payload_kind = (enum payload_kind)value;
        in->table->payload_is_jsonb = strcmp(query_text(in->columns, row, COLUMN_TYPE), "jsonb") == 0;
        break;
    case USE_HEADERS:
        in->table->headers_kind = (enum payload_kind)value;
        break;
    case USE_INSTANT:
        in->table->not_before_attnum = attnum;
        break;
    case USE_AFTER:
        in->table->after_attnum = attnum;
        in->table->after_is_array = value;
        break;
    case USE_PRIORITY:
        in->table->priority_attnum = attnum;
        break;
    default:
        break;
    }
}

/* Nothing is ordered, locked or parked by it. */
static void only_send_key(struct table *table)
{
    table->sent_key_sql = table->key_sql;
    table->key_sql = NULL;
    table->key_type = KEY_NONE;
    table->key_attnum = -1;
    table->key_nullable = table->key_loose = false;
}

static bool map_column(struct inspection *in, const struct mapping *mapping, struct error *err)
{
    const char *name = *(char *const *)((const char *)&in->queue->columns + mapping->config_offset);
    if (!name)
        return true;
    int row = column_row(in, name), value;
    if (row < 0) {
        char used_by[32];
        snprintf(used_by, sizeof used_by, "columns.%s", mapping->setting);
        return no_such_column(in, used_by, name, err);
    }
    if (!type_value(mapping->use, query_text(in->columns, row, COLUMN_TYPE), &value))
        return wrong_type(in, mapping, row, err);
    *(char **)((char *)in->table + mapping->table_offset) = memory_text(query_text(in->columns, row, COLUMN_SQL));
    note_column(in, mapping, row, value);
    return true;
}

/* Adds a column that the destination names, once. */
static bool add_extra(struct inspection *in, const char *name, struct error *err)
{
    struct table *table = in->table;
    int row = column_row(in, name);
    if (row < 0)
        return no_such_column(in, "destination", name, err);
    for (size_t i = 0; i < table->extra_count; i++)
        if (strcmp(table->extra_names[i], name) == 0)
            return true;
    size_t count = table->extra_count + 1;
    table->extra_sql = memory_resize(table->extra_sql, count, sizeof *table->extra_sql);
    table->extra_names = memory_resize(table->extra_names, count, sizeof *table->extra_names);
    table->extra_sql[table->extra_count] = memory_text(query_text(in->columns, row, COLUMN_SQL));
    table->extra_names[table->extra_count++] = memory_text(name);
    return true;
}

static bool is_builtin(const char *name)
{
    return strcmp(name, "key") == 0 || strcmp(name, "type") == 0 || strcmp(name, "id") == 0;
}

/* Walks the template as the router does: {NAME} is a value, {{ and }} are braces. */
static bool find_extras(struct inspection *in, struct error *err)
{
    const char *template = in->queue->destination ? in->queue->destination : "";
    for (const char *p = template; *p; p++) {
        if (*p != '{' || *++p == '{')
            continue;
        size_t length = strcspn(p, "}");
        char name[IDENTIFIER_MAX];
        if (p[length] == '\0' || length == 0 || length >= sizeof name)
            return error_set(err, ERROR_CONFIG,
                             "%s: destination \"%s\": after a \"{\" comes the name of a column and a \"}\"; "
                             "write \"{{\" for a brace",
                             in->queue->place, template);
        memcpy(name, p, length);
        name[length] = '\0';
        if (!is_builtin(name) && !add_extra(in, name, err))
            return false;
        p += length;
    }
    return true;
}

/* `queue->table` is [schema.]table; without a schema, public. */
static void split_name(const char *name, char schema[IDENTIFIER_MAX], const char **ret_table)
{
    const char *dot = strchr(name, '.');
    int length = dot ? (int)(dot - name) : 6;
    snprintf(schema, IDENTIFIER_MAX, "%.*s", length, dot ? name : "public");
    *ret_table = dot ? dot + 1 : name;
}

static bool find_table(struct inspection *in, struct error *err)
{
    char schema[IDENTIFIER_MAX];
    const char *params[] = {schema, NULL};
    split_name(in->queue->table, schema, &params[1]);
    PGresult *found = query_in_time(in->conn, in->queue->name, sql_table_find, 2, params, err);
    if (!found)
        return false;
    bool ok = PQntuples(found) == 1 ||
              error_set(err, ERROR_CONFIG, "%s: there is no table %s.%s in database %s%s", in->queue->place, schema,
                        params[1], PQdb(in->conn), strcmp(schema, "outbox") == 0 ? "; run pgcourier migrate" : "");
    if (ok && strchr("rp", query_text(found, 0, 3)[0]) == NULL)
        ok = error_set(err, ERROR_CONFIG,
                       "%s: %s is a view or a foreign table; events are deleted by id, so give the table behind it",
                       in->queue->place, in->queue->table);
    if (ok) {
        in->table->oid = (unsigned)query_int(found, 0, 0);
        in->table->name_sql = memory_text(query_text(found, 0, 1));
        in->table->plain_name = memory_text(query_text(found, 0, 2));
        in->table->places = query_bool(found, 0, 4);
    }
    PQclear(found);
    return ok;
}

static bool find_columns(struct inspection *in, struct error *err)
{
    char oid[16];
    snprintf(oid, sizeof oid, "%u", in->table->oid);
    in->columns = query_in_time(in->conn, in->table->plain_name, sql_table_columns, 1, (const char *const[]){oid}, err);
    if (!in->columns)
        return false;
    for (size_t i = 0; i < MAPPINGS; i++)
        if (!map_column(in, &mappings[i], err))
            return false;
    if (in->queue->unordered)
        only_send_key(in->table);
    in->table->comes_again = in->table->key_type == KEY_NONE && strcmp(in->table->plain_name, outbox_table) == 0;
    return find_extras(in, err);
}

static bool find_indexes(struct inspection *in, struct error *err)
{
    struct table *table = in->table;
    char oid[16], id[16], key[16], priority[16];
    snprintf(oid, sizeof oid, "%u", table->oid);
    snprintf(id, sizeof id, "%d", table->id_attnum);
    snprintf(key, sizeof key, "%d", table->key_attnum);
    snprintf(priority, sizeof priority, "%d", table->priority_attnum);
    PGresult *result = query_in_time(in->conn, table->plain_name, sql_table_indexes, 4,
                                     (const char *const[]){oid, id, key, priority}, err);
    if (!result)
        return false;
    table->index_key_id = query_bool(result, 0, 0);
    table->index_key = query_bool(result, 0, 1);
    table->index_id = query_bool(result, 0, 2);
    table->index_priority = query_bool(result, 0, 4);
    PQclear(result);
    result = query_in_time(in->conn, table->plain_name, sql_table_sequence, 2, (const char *const[]){oid, id}, err);
    if (!result)
        return false;
    if (PQntuples(result) == 1 && query_bool(result, 0, 1))
        table->sequence_sql = memory_text(query_text(result, 0, 0));
    PQclear(result);
    return true;
}

/* FNV-1a: the same number in every relay, whatever its version. */
static int32_t lock_class_of(const char *plain_name)
{
    uint32_t hash = 2166136261;
    for (const char *p = "pgcourier:"; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619;
    for (const char *p = plain_name; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619;
    return (int32_t)hash;
}

static struct table *inspect(PGconn *conn, const struct queue_config *queue, struct error *err)
{
    struct table *table = memory_new(sizeof *table);
    table->key_attnum = table->not_before_attnum = table->after_attnum = table->priority_attnum = -1;
    struct inspection in = {.conn = conn, .queue = queue, .table = table};
    bool ok = find_table(&in, err) && find_columns(&in, err) && find_indexes(&in, err);
    PQclear(in.columns);
    if (!ok) {
        table_free(table);
        return NULL;
    }
    if (!queue->state && !(queue->unordered && queue->locks == LOCKS_ROWS))
        table->keys_oid = queue->keys_oid ? queue->keys_oid : table->oid;
    table->lock_class = queue->lock_class ? (int32_t)queue->lock_class : lock_class_of(table->plain_name);
    return table;
}

struct table *table_inspect(PGconn *conn, const struct queue_config *queue, struct error *err)
{
    struct table *table = inspect(conn, queue, err);
    if (table && queue->next)
        table->next = inspect(conn, queue->next, err);
    if (!table || !queue->next || table->next)
        return table;
    table_free(table);
    return NULL;
}

static void free_one(struct table *table)
{
    for (size_t i = 0; i < MAPPINGS; i++)
        free(*(char **)((char *)table + mappings[i].table_offset));
    for (size_t i = 0; i < table->extra_count; i++) {
        free(table->extra_sql[i]);
        free(table->extra_names[i]);
    }
    free(table->extra_sql);
    free(table->extra_names);
    free(table->sent_key_sql);
    free(table->sequence_sql);
    free(table->name_sql);
    free(table->plain_name);
    free(table);
}

void table_free(struct table *table)
{
    for (struct table *next; table; table = next) {
        next = table->next;
        free_one(table);
    }
}
