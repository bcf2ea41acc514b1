/* How the names of one table go into the statements. tests/integration/schema/test_statements.py has PostgreSQL read
 * them. */
#include "relay/table/table_sql.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#include <stdio.h>

static struct arena *arena;
static struct table table;
static struct queue_config config;

static char name_sql[] = "\"public\".\"events\"", plain_name[] = "public.events", id_sql[] = "\"id\"",
            key_sql[] = "\"order_id\"", payload_sql[] = "\"body\"", extra_sql[] = "\"region\"";

static void set_up(void)
{
    arena = arena_new();
    table = (struct table){.name_sql = name_sql,
                           .plain_name = plain_name,
                           .id_sql = id_sql,
                           .key_sql = key_sql,
                           .key_type = KEY_BIGINT,
                           .index_key_id = true};
    config = (struct queue_config){.name = plain_name};
}

static void tear_down(void)
{
    arena_free(arena);
}

static const char *value(const char *name)
{
    const struct sql_variable *v = table_variables(&table, &config, arena);
    while (v->name && strcmp(v->name, name) != 0)
        v++;
    ck_assert_msg(v->name != NULL, "no variable %s", name);
    return v->text;
}

static void assert_has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "no \"%s\" in: %s", part, text);
}

static void assert_has_not(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) == NULL, "\"%s\" in: %s", part, text);
}

/* tests/integration/delivery/test_lock_sections.py runs it, with other names. */
START_TEST(key_is_late_by_an_event_of_its_own_between_the_floor_and_what_was_found)
{
    static char where[] = "kind = 1";
    config.where = where;
    const char *late = value("late");
    assert_has(late,
               "f.keyless is null and exists (select from \"public\".\"events\" e where (e.\"order_id\", e.\"id\") >= "
               "(f.key, $10::bigint) and (e.\"order_id\", e.\"id\") < (f.key, f.low) and (");
    assert_has(late, "kind = 1");
    assert_has(late, " order by e.\"order_id\" desc, e.\"id\" desc offset 0)");
    ck_assert_str_eq(value("more"), "l.ok and l.high > l.low");
}
END_TEST

START_TEST(names_become_literals_that_cannot_end_early)
{
    static const char *const rows[][2] = {
        {"public.events", "'public.events'"}, {"it's", "'it''s'"}, {"back\\slash", "E'back\\\\slash'"},
        {"both\\'", "E'both\\\\'''"},         {"", "''"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[40];
        snprintf(name, sizeof name, "%s", rows[i][0]);
        table.plain_name = name;
        ck_assert_str_eq(value("table_name"), rows[i][1]);
    }
}
END_TEST

/* What PostgreSQL reads in them is the name as it is: tests/integration/table/test_table_names.py. */
START_TEST(regclasses_are_made_of_quoted_names)
{
    static const char *const rows[][2] = {
        {"\"public\".\"Events\"", "'\"public\".\"Events\"'::pg_catalog.regclass"},
        {"\"My\".\"it's\"", "'\"My\".\"it''s\"'::pg_catalog.regclass"},
        {"\"a.b\".\"c \"\"\\\"", "E'\"a.b\".\"c \"\"\\\\\"'::pg_catalog.regclass"},
    };
    char name[40];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(name, sizeof name, "%s", rows[i][0]);
        table.name_sql = table.sequence_sql = name;
        ck_assert_str_eq(value("table_class"), rows[i][1]);
        assert_has(value("deleted"), rows[i][1]);
        ck_assert_str_eq(value("sequence_class"), rows[i][1]);
        ck_assert_str_eq(value("holders_of"), rows[i][1]);
    }
    ck_assert_str_eq(value("parked_class"), "'outbox.parked'::pg_catalog.regclass");
}
END_TEST

START_TEST(range_of_a_key_is_one_walk_of_an_index_on_key_and_id)
{
    assert_has(value("key_range"), "(e.\"order_id\", e.\"id\") >= (k.name::bigint, ");
    assert_has(value("key_order"), "e.\"order_id\", e.\"id\"");
    assert_has(value("key_all"), "(e.\"order_id\", e.\"id\") >= (k.name::bigint, ");
    ck_assert_str_eq(value("key_all_order"), "e.\"order_id\", e.\"id\"");
}
END_TEST

START_TEST(range_of_a_key_without_that_index_cannot_be_served_by_the_primary_key)
{
    table.index_key_id = false;
    assert_has(value("key_range"), "e.\"order_id\" = k.name::bigint");
    ck_assert_str_eq(value("key_order"), "e.\"id\" + 0");
    table.index_key = true;
    ck_assert_str_eq(value("key_all"), "e.\"order_id\" = k.name::bigint");
    ck_assert_str_eq(value("key_all_order"), "e.\"id\" + 0");
}
END_TEST

START_TEST(first_event_of_a_key_without_any_index_is_found_in_the_order_of_ids)
{
    table.index_key_id = table.index_key = false;
    ck_assert_str_eq(value("key_all_order"), "e.\"id\"");
}
END_TEST

START_TEST(key_is_compared_in_its_own_type)
{
    static const struct {
        enum key_type type;
        const char *name;
    } rows[] = {
        {KEY_BIGINT, "bigint"},
        {KEY_INTEGER, "bigint"},
        {KEY_TEXT, "text"},
        {KEY_UUID, "uuid"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        table.key_type = rows[i].type;
        ck_assert_str_eq(value("key_type"), rows[i].name);
    }
}
END_TEST

START_TEST(queue_without_a_key_column_has_null_keys)
{
    table.key_sql = NULL;
    table.key_type = KEY_NONE;
    table.index_key_id = false;
    ck_assert_str_eq(value("key"), "null::text");
    assert_has(value("columns"), "null::text as key");
}
END_TEST

START_TEST(payload_is_the_row_unless_a_column_is_mapped)
{
    assert_has(value("columns"), "row_to_json(e.*)::text as payload");
    table.payload_sql = payload_sql;
    assert_has(value("columns"), "e.\"body\"::text as payload");
    table.payload_kind = PAYLOAD_BYTES;
    assert_has(value("columns"), "e.\"body\" as payload");
}
END_TEST

START_TEST(what_is_not_due_is_read_with_its_delay_or_left_out)
{
    static char at[] = "\"at\"";
    assert_has_not(value("columns"), "delay_us");
    ck_assert_str_eq(value("where"), "true");
    table.not_before_sql = at;
    assert_has(value("columns"), "as delay_us");
    ck_assert_str_eq(value("where"), "true");
    config.delayed = DELAYED_PASS;
    assert_has_not(value("columns"), "delay_us");
    assert_has(value("where"), "(true) and (e.\"at\" is null or e.\"at\" <= pg_catalog.statement_timestamp())");
}
END_TEST

START_TEST(what_comes_after_others_is_read_with_one_that_is_not_done)
{
    static char after[] = "\"after\"";
    assert_has_not(value("columns"), "after_id");
    table.after_sql = after;
    assert_has(value("columns"), "unnest(array[e.\"after\"::bigint]) as a (id)");
    assert_has(value("columns"), "o.key");
    assert_has(value("columns"), "d.queue = 'public.events' and d.event_id = a.id");
    table.after_is_array = true;
    table.key_sql = NULL;
    assert_has(value("columns"), "unnest(e.\"after\"::bigint[]) as a (id)");
    assert_has_not(value("columns"), "o.key");
    static char where[] = "status <> 'draft'", state[] = "elsewhere";
    config.where = where;
    config.state = state;
    config.delayed = DELAYED_PASS;
    assert_has(value("columns"), "and (status <> 'draft')");
    assert_has(value("columns"), "elsewhere.dead");
    ck_assert_str_eq(value("undone"), where);
    ck_assert_str_eq(value("lives"), "true");
    ck_assert_str_eq(value("in_order"), "");
}
END_TEST

START_TEST(what_comes_again_is_read_with_the_event_that_goes_first_whoever_serves_it)
{
    static char after[] = "\"after\"", where[] = "status <> 'draft'";
    table.comes_again = true;
    table.key_sql = NULL;
    config.where = where;
    assert_has(value("columns"), "between e.again_after and e.again_after order by");
    assert_has_not(value("columns"), where);
    ck_assert_str_eq(value("undone"), "true");
    ck_assert_str_eq(value("lives"), "false");
    table.after_sql = after;
    assert_has(value("columns"), "coalesce(case when e.again_after");
    assert_has(value("columns"), "unnest(array[e.\"after\"::bigint]) as a (id)");
    ck_assert_str_eq(value("undone"), where);
    ck_assert_str_eq(value("lives"), "true");
}
END_TEST

START_TEST(oversize_payload_is_measured_and_not_read)
{
    table.payload_sql = payload_sql;
    table.payload_kind = PAYLOAD_TEXT;
    assert_has(value("columns"), "null::bigint as oversize");
    config.max_event_bytes = 1000;
    assert_has(value("columns"), "case when pg_catalog.octet_length(e.\"body\"::text) > 1000");
    assert_has(value("columns"),
               "case when pg_catalog.octet_length(e.\"body\"::text) <= 1000 then e.\"body\"::text end as payload");
    ck_assert_str_eq(value("text_once"), "");
}
END_TEST

START_TEST(text_of_json_is_made_once_to_be_measured_and_read)
{
    table.payload_sql = payload_sql;
    table.payload_kind = PAYLOAD_JSON;
    ck_assert_str_eq(value("text_once"), "");
    config.max_event_bytes = 1000;
    assert_has(value("text_once"), "(select e.\"body\"::text as courier_payload offset 0)");
    assert_has_not(value("columns"), "e.\"body\"");
    assert_has(value("columns"), "case when pg_catalog.octet_length(courier.courier_payload) > 1000");
    assert_has(value("columns"), "<= 1000 then courier.courier_payload end as payload");
}
END_TEST

START_TEST(extra_columns_come_last_in_order)
{
    char *extra[] = {extra_sql, id_sql};
    table.extra_sql = extra;
    table.extra_count = 2;
    const char *columns = value("columns");
    assert_has(columns, "as traceparent, e.ctid as tid, e.\"region\"::text as extra_0, e.\"id\"::text as extra_1");
}
END_TEST

START_TEST(filter_is_true_when_there_is_none)
{
    ck_assert_str_eq(value("where"), "true");
    char where[] = "status <> 'draft'";
    config.where = where;
    assert_has(value("where"), where);
}
END_TEST

START_TEST(lock_is_over_the_chosen_key_and_not_the_tables_column)
{
    const char *hash = value("lock_hash");
    assert_has(hash, "k.key");
    assert_has(hash, "k.keyless");
    assert_has_not(hash, "e.");
}
END_TEST

START_TEST(key_that_was_remembered_is_cast_only_where_it_fits)
{
    assert_has(value("parked_key"), "case when p.key ~ ");
    assert_has(value("parked_key"), " then p.key::bigint");
    table.key_type = KEY_UUID;
    assert_has(value("parked_key"), " then p.key::uuid end");
    table.key_type = KEY_TEXT;
    ck_assert_str_eq(value("parked_key"), "p.key");
}
END_TEST

START_TEST(ids_are_fed_by_the_sequence_or_else_by_the_table)
{
    ck_assert_str_eq(value("holders_of"), "'\"public\".\"events\"'::pg_catalog.regclass");
    ck_assert_str_eq(value("drawn_further"), "$1::bigint is not null");
    static char sequence[] = "public.events_id_seq";
    table.sequence_sql = sequence;
    ck_assert_str_eq(value("sequence"), "public.events_id_seq");
    ck_assert_str_eq(value("holders_of"), "'public.events_id_seq'::pg_catalog.regclass");
    ck_assert_str_eq(value("drawn_further"), "(select q.last_value from public.events_id_seq q) <> $1::bigint");
}
END_TEST

START_TEST(columns_that_both_tables_have_go_on)
{
    static char next_name[] = "\"public\".\"next\"", next_key[] = "\"it's\"", next_type[] = "\"t\"",
                next_payload[] = "\"p\"";
    static struct table next;
    next = (struct table){.name_sql = next_name,
                          .plain_name = plain_name,
                          .key_sql = next_key,
                          .type_sql = next_type,
                          .payload_sql = next_payload};
    table.next = &next;
    ck_assert_str_eq(value("handed"), ", e.\"order_id\" as key, pg_catalog.row_to_json(e.*) as payload");
    ck_assert_str_eq(value("next_table"), next_name);
    ck_assert_str_eq(value("next_table_name"), "'public.events'");
    ck_assert_str_eq(value("next_columns"), "\"it's\", \"p\"");
    ck_assert_str_eq(value("next_names"), "'\"it''s\"', '\"p\"'");
    ck_assert_str_eq(value("next_values"), "g.key, g.payload");
    table.payload_sql = payload_sql;
    assert_has(value("handed"), ", e.\"body\" as payload");
    ck_assert_str_eq(value("responses"), "");
}
END_TEST

START_TEST(of_a_row_that_leaves_only_what_is_wanted_is_taken)
{
    assert_has(value("deleted"), "returning e.\"id\" as id\n");
    config.after = AFTER_ARCHIVE;
    assert_has(value("deleted"), "returning e.\"id\" as id, (e.\"order_id\")::text as archive_key, ");
    static char next_name[] = "\"public\".\"next\"", next_key[] = "\"k\"";
    static struct table next;
    next = (struct table){.name_sql = next_name, .plain_name = plain_name, .key_sql = next_key};
    table.next = &next;
    assert_has(value("deleted"), "pg_catalog.row_to_json(e.*) as original, e.\"order_id\" as key\n");
    config.after = AFTER_DELETE;
    assert_has(value("deleted"), "returning e.\"id\" as id, e.\"order_id\" as key\n");
}
END_TEST

static const struct {
    enum payload_kind kind;
    bool jsonb;
    const char *value;
} responses[] = {{PAYLOAD_JSON, true, "pg_catalog.convert_from(r.response, 'UTF8')::jsonb"},
                 {PAYLOAD_JSON, false, "pg_catalog.convert_from(r.response, 'UTF8')::json"},
                 {PAYLOAD_TEXT, false, "pg_catalog.convert_from(r.response, 'UTF8')"},
                 {PAYLOAD_BYTES, false, "r.response"}};

START_TEST(answer_goes_on_as_what_its_column_is)
{
    static char next_name[] = "\"public\".\"next\"", next_payload[] = "\"p\"";
    static struct table next;
    next = (struct table){.name_sql = next_name,
                          .plain_name = plain_name,
                          .payload_sql = next_payload,
                          .payload_kind = responses[_i].kind,
                          .payload_is_jsonb = responses[_i].jsonb};
    table.next = &next;
    config.then_payload = THEN_RESPONSE;
    ck_assert_str_eq(value("handed"), "");
    ck_assert_str_eq(value("next_columns"), "\"p\"");
    ck_assert_str_eq(value("next_values"), responses[_i].value);
    assert_has(value("responses"), " join rows from (pg_catalog.unnest($1::bigint[]), pg_catalog.unnest($3::bytea[]))");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("table_sql");
    TCase *tcase = tcase_create("table_sql");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, key_is_late_by_an_event_of_its_own_between_the_floor_and_what_was_found);
    tcase_add_test(tcase, names_become_literals_that_cannot_end_early);
    tcase_add_test(tcase, regclasses_are_made_of_quoted_names);
    tcase_add_test(tcase, range_of_a_key_is_one_walk_of_an_index_on_key_and_id);
    tcase_add_test(tcase, range_of_a_key_without_that_index_cannot_be_served_by_the_primary_key);
    tcase_add_test(tcase, first_event_of_a_key_without_any_index_is_found_in_the_order_of_ids);
    tcase_add_test(tcase, key_is_compared_in_its_own_type);
    tcase_add_test(tcase, queue_without_a_key_column_has_null_keys);
    tcase_add_test(tcase, payload_is_the_row_unless_a_column_is_mapped);
    tcase_add_test(tcase, what_is_not_due_is_read_with_its_delay_or_left_out);
    tcase_add_test(tcase, what_comes_after_others_is_read_with_one_that_is_not_done);
    tcase_add_test(tcase, what_comes_again_is_read_with_the_event_that_goes_first_whoever_serves_it);
    tcase_add_test(tcase, oversize_payload_is_measured_and_not_read);
    tcase_add_test(tcase, text_of_json_is_made_once_to_be_measured_and_read);
    tcase_add_test(tcase, extra_columns_come_last_in_order);
    tcase_add_test(tcase, filter_is_true_when_there_is_none);
    tcase_add_test(tcase, lock_is_over_the_chosen_key_and_not_the_tables_column);
    tcase_add_test(tcase, key_that_was_remembered_is_cast_only_where_it_fits);
    tcase_add_test(tcase, ids_are_fed_by_the_sequence_or_else_by_the_table);
    tcase_add_test(tcase, columns_that_both_tables_have_go_on);
    tcase_add_test(tcase, of_a_row_that_leaves_only_what_is_wanted_is_taken);
    tcase_add_loop_test(tcase, answer_goes_on_as_what_its_column_is, 0, 4);
    return run_suite(suite);
}
