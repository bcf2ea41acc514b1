/* Names from the configuration and the catalogue: whatever they are, every statement has the very tokens that it has
 * with plain names, and in each place of a name stands that name. */
#include "tests/fuzz/sql_tokens.h"

#include "relay/table/table_sql.h"
#include "sql_text.h"

/* The names of one table, and of the next queue's, as they are; rendered, they are quoted as PostgreSQL's quote_ident()
 * does. An input holds them in this order; no plain one begins as another does. */
struct names {
    char *schema, *table, *id, *key, *type, *payload, *extra, *sequence;
    char *headers, *event_id, *traceparent, *not_before, *after, *priority, *next, *next_key, *next_payload;
};

#define PLAIN(name) ((char[]){"plain_" name})

static const struct names plain = {
    .schema = PLAIN("schema"),
    .table = PLAIN("table"),
    .id = PLAIN("id"),
    .key = PLAIN("key"),
    .type = PLAIN("type"),
    .payload = PLAIN("payload"),
    .extra = PLAIN("extra"),
    .sequence = PLAIN("sequence"),
    .headers = PLAIN("headers"),
    .event_id = PLAIN("event_id"),
    .traceparent = PLAIN("traceparent"),
    .not_before = PLAIN("not_before"),
    .after = PLAIN("after"),
    .priority = PLAIN("priority"),
    .next = PLAIN("other_table"),
    .next_key = PLAIN("other_key"),
    .next_payload = PLAIN("other_payload"),
};

#define NAMES (sizeof(struct names) / sizeof(char *))

/* What table_variables() fills in, and for lock_ids and lock_events what they look at;
 * tests/integration/schema/test_statements.py compares. */
static const char *const templates[] = {
    sql_per_key_read,
    sql_per_key_read_few,
    sql_settle_delete,
    sql_settle_archive,
    sql_settle_bury,
    sql_settle_park,
    sql_settle_unpark,
    sql_horizon_drawn,
    sql_horizon_seen,
    sql_horizon_floor,
    sql_horizon_movers,
    sql_horizon_holders,
    sql_queue_empty,
    sql_rest_look,
    sql_table_filter,
    sql_status_oldest,
    sql_claim_peek,
    sql_session_lock,
    sql_session_unlock,
    sql_lock_events,
    sql_unordered_read,
    sql_delayed_due,
    sql_after_look,
    sql_dead_purge,
    sql_lease_grant,
    sql_lease_renew,
    sql_settle_leases,
    sql_settle_move,
    sql_settle_give_back,
    sql_settle_undeleted,
    sql_settle_next,
    sql_settle_next_archive,
    sql_table_next_fits,
    sql_table_next_wants,
    sql_status_waiting,
    sql_unreadable_ids,
    sql_unreadable_ids_of_key,
    sql_unreadable_where,
    sql_unreadable_read,
    sql_unreadable_known,
    sql_fresh_lock,
    sql_fresh_read,
    sql_lock_ids,
    sql_lock_named,
    sql_lock_due,
};

static char *quoted(struct arena *arena, const char *name)
{
    char *text = arena_alloc(arena, strlen(name) * 2 + 3), *out = text;
    *out++ = '"';
    for (; *name; name++) {
        if (*name == '"')
            *out++ = '"';
        *out++ = *name;
    }
    *out = '"';
    return text;
}

static char *dotted(struct arena *arena, const char *schema, const char *name)
{
    return arena_printf(arena, "%s.%s", quoted(arena, schema), quoted(arena, name));
}

/* The table of the queue that follows. Some columns have the names of the first one's. */
static struct table *next_of(const struct names *names, unsigned shape, struct arena *arena)
{
    struct table *next = arena_alloc(arena, sizeof *next);
    *next = (struct table){
        .name_sql = dotted(arena, names->schema, names->next),
        .plain_name = arena_printf(arena, "%s.%s", names->schema, names->next),
        .id_sql = quoted(arena, names->id),
        .key_sql = quoted(arena, names->next_key),
        .type_sql = quoted(arena, names->type),
        .payload_sql = quoted(arena, names->next_payload),
        .headers_sql = quoted(arena, names->headers),
        .traceparent_sql = quoted(arena, names->traceparent),
        .payload_kind = shape & 4 ? PAYLOAD_BYTES : PAYLOAD_TEXT,
    };
    return next;
}

/* And those of the end of its ids that a claim looks from. */
static const struct sql_variable *with_end(const struct sql_variable *of_table, unsigned shape, struct arena *arena)
{
    bool oldest = shape & 1;
    const struct sql_variable end[] = {{"order", oldest ? "asc" : "desc"},
                                       {"near", oldest ? "low" : "high"},
                                       {"behind", oldest ? ">=" : "<="},
                                       {"seen", "e.id as id"},
                                       {"stretch", "e.id > $2::bigint"},
                                       {"sort", "e.id"},
                                       {"first", "f.id"},
                                       {"by", "o.id"},
                                       {"all", "true"},
                                       {NULL, NULL}};
    return sql_variables_with(of_table, end, arena);
}

/* The variables of a table of these names; `shape` decides what else it is. */
static const struct sql_variable *variables_of(const struct names *names, unsigned shape, struct arena *arena)
{
    char **extra = arena_alloc(arena, sizeof *extra);
    *extra = quoted(arena, names->extra);
    bool more = shape & 0x800;
    struct table table = {
        .name_sql = dotted(arena, names->schema, names->table),
        .plain_name = arena_printf(arena, "%s.%s", names->schema, names->table),
        .id_sql = quoted(arena, names->id),
        .key_sql = shape & 1 ? quoted(arena, names->key) : NULL,
        .type_sql = shape & 2 ? quoted(arena, names->type) : NULL,
        .payload_sql = shape & 4 ? quoted(arena, names->payload) : NULL,
        .created_at_sql = shape & 8 ? quoted(arena, names->type) : NULL,
        .sequence_sql = shape & 16 ? dotted(arena, names->schema, names->sequence) : NULL,
        .headers_sql = more ? quoted(arena, names->headers) : NULL,
        .event_id_sql = more ? quoted(arena, names->event_id) : NULL,
        .traceparent_sql = more ? quoted(arena, names->traceparent) : NULL,
        .not_before_sql = shape & 0x100 ? quoted(arena, names->not_before) : NULL,
        .after_sql = shape & 0x200 ? quoted(arena, names->after) : NULL,
        .after_is_array = shape & 32,
        .priority_sql = shape & 0x400 ? quoted(arena, names->priority) : NULL,
        .sent_key_sql = shape & 1 ? NULL : quoted(arena, names->key),
        .payload_kind = shape & 32 ? PAYLOAD_BYTES : PAYLOAD_TEXT,
        .index_key_id = shape & 64 && shape & 1,
        .key_type = shape & 1 ? shape & 128 ? KEY_TEXT : KEY_BIGINT : KEY_NONE,
        .extra_sql = extra,
        .extra_count = 1,
        .next = next_of(names, shape, arena),
    };
    const struct queue_config queue = {
        .name = "orders",
        .max_event_bytes = shape & 32 ? 1000 : 0,
        .delayed = shape & 0x1000 ? DELAYED_HOLD : DELAYED_PASS,
        .locks = shape & 0x2000 ? LOCKS_ADVISORY : LOCKS_ROWS,
        .then_payload = shape & 0x4000 ? THEN_RESPONSE : THEN_EVENT,
    };
    return with_end(shape & 0x8000 ? table_guarded_variables(&table, &queue, arena)
                                   : table_variables(&table, &queue, arena),
                    shape, arena);
}

/* The plain name that `text` starts with, quoted or not: adds what stands for it and returns its length; else 0. */
static size_t replace_name(const char *text, const struct names *names, struct arena *arena, char **out)
{
    for (size_t i = 0; i < NAMES && strchr("\"p", *text); i++) {
        const char *from = ((char *const *)&plain)[i], *to = ((char *const *)names)[i];
        bool in_quotes = *text == '"';
        from = in_quotes ? quoted(arena, from) : from;
        if (strncmp(text, from, strlen(from)) == 0) {
            *out = stpcpy(*out, in_quotes ? quoted(arena, to) : to);
            return strlen(from);
        }
    }
    return 0;
}

/* What stands in the place where `wanted` would stand, had the table plain names. */
static const char *hostile_of(const char *wanted, const struct names *names, struct arena *arena)
{
    char *text = arena_alloc(arena, strlen(wanted) + 4096), *out = text;
    while (*wanted) {
        size_t size = replace_name(wanted, names, arena, &out);
        if (size == 0)
            *out++ = *wanted++;
        wanted += size;
    }
    return text;
}

static void check_token(const struct sql_token *want, const struct sql_token *got, const struct names *names,
                        struct arena *arena)
{
    FUZZ_CHECK(want->kind == got->kind, "%.*s in place of %.*s", (int)got->text.size, got->text.data,
               (int)want->text.size, want->text.data);
    if (want->kind != SQL_QUOTED_NAME && want->kind != SQL_STRING) {
        FUZZ_CHECK(span_equal(want->text, got->text), "%.*s in place of %.*s", (int)got->text.size, got->text.data,
                   (int)want->text.size, want->text.data);
        return;
    }
    char *wanted = sql_token_value(want), *value = sql_token_value(got);
    const char *hostile = hostile_of(wanted, names, arena);
    FUZZ_CHECK(strcmp(value, hostile) == 0, "%s in place of %s", value, hostile);
    free(wanted);
    free(value);
}

static void check_same_tokens(const char *wanted, const char *sql, const struct names *names, struct arena *arena)
{
    struct sql_token want, got;
    for (;;) {
        wanted = sql_token_next(wanted, &want);
        sql = sql_token_next(sql, &got);
        FUZZ_CHECK(!wanted == !sql, "more or fewer tokens");
        if (!wanted)
            return;
        check_token(&want, &got, names, arena);
    }
}

static void check_statement(const char *template, const struct names *names, unsigned shape)
{
    struct arena *arena = arena_new();
    struct error err;
    char *wanted = sql_render(template, variables_of(&plain, shape, arena), &err);
    char *sql = sql_render(template, variables_of(names, shape, arena), &err);
    FUZZ_CHECK(wanted && sql, "%s", err.text);
    check_same_tokens(wanted, sql, names, arena);
    free(wanted);
    free(sql);
    arena_free(arena);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct names names;
    unsigned shape = fuzz_byte(&in), which = fuzz_byte(&in) % (sizeof templates / sizeof templates[0]);
    shape |= (unsigned)fuzz_byte(&in) << 8;
    for (size_t i = 0; i < NAMES; i++) {
        struct span name = fuzz_span(&in);
        name.size = name.size < 63 ? name.size : 63; /* NAMEDATALEN */
        ((char **)&names)[i] = fuzz_text(name);
    }
    check_statement(templates[which], &names, shape);
    for (size_t i = 0; i < NAMES; i++)
        free(((char **)&names)[i]);
    return 0;
}
