#include "relay/route/destination.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

static const char *const extra[] = {"region", "tenant"};
static struct arena *arena;

static void set_up(void)
{
    arena = arena_new();
}

static void tear_down(void)
{
    arena_free(arena);
}

static struct span columns[] = {{"eu", 2}, {NULL, 0}};

static struct span route_one(const char *template, struct error *err)
{
    struct event event = {.id = -42, .key = SPAN_LITERAL("k"), .type = {NULL, 0}, .columns = columns};
    struct span destination = {NULL, 0};
    struct route *route = route_new(template, extra, 2, err);
    ck_assert_msg(route != NULL, "%s", template);
    bool ok = route_event(route, &event, arena, &destination, err);
    ck_assert(ok == (destination.data != NULL));
    if (ok) /* the route goes, its text stays with the batch or the queue: copy it for the comparison */
        destination = arena_copy(arena, destination);
    route_free(route);
    return destination;
}

START_TEST(template_becomes_the_destination)
{
    static const char *const rows[][2] = {
        {"", ""},
        {"orders", "orders"},
        {"o.{key}", "o.k"},
        {"{id}", "-42"},
        {"{region}/{key}/{key}", "eu/k/k"},
        {"{{{key}}}", "{k}"},
        {"a{{b}}c", "a{b}c"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err;
        struct span destination = route_one(rows[i][0], &err);
        ck_assert_msg(span_equal(destination, span_of(rows[i][1])), "%s -> %s", rows[i][0], destination.data);
        ck_assert_int_eq(destination.data[destination.size], '\0');
    }
    struct error err;
    ck_assert_uint_eq(route_one("", &err).size, 0);
}
END_TEST

START_TEST(event_that_lacks_a_part_can_never_be_delivered)
{
    struct error err;
    ck_assert_ptr_null(route_one("x-{type}", &err).data);
    ck_assert_int_eq(err.kind, ERROR_REFUSED);
    ck_assert_str_eq(err.text, "destination: {type} is NULL in this event");
    ck_assert_ptr_null(route_one("{tenant}", &err).data);
}
END_TEST

START_TEST(broken_templates_are_refused_with_the_place)
{
    static const char *const rows[][2] = {
        {"a{key", "has no closing brace"},
        {"a{}b", "has no closing brace"},
        {"a}b", "has no opening brace"},
        {"{ke{y}", "has no closing brace"},
        {"{colour}", "is not key, type, id or a column"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err;
        ck_assert_ptr_null(route_new(rows[i][0], extra, 2, &err));
        ck_assert_int_eq(err.kind, ERROR_CONFIG);
        ck_assert_msg(strstr(err.text, rows[i][1]) != NULL, "%s: %s", rows[i][0], err.text);
    }
}
END_TEST

START_TEST(number_of_parts_is_bounded)
{
    struct error err;
    char many[200], *end = many;
    for (int i = 0; i < 40; i++)
        end = stpcpy(end, "{id}");
    ck_assert_ptr_null(route_new(many, extra, 2, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "more than"));
}
END_TEST

START_TEST(template_without_names_is_static)
{
    struct error err;
    struct route *fixed = route_new("a{{b}}", extra, 2, &err), *moving = route_new("a{id}", extra, 2, &err),
                 *none = route_new(NULL, extra, 2, &err);
    ck_assert(span_equal(route_static(fixed), SPAN_LITERAL("a{b}")));
    ck_assert_ptr_null(route_static(moving).data);
    ck_assert_ptr_nonnull(route_static(none).data);
    ck_assert_uint_eq(route_static(none).size, 0);
    route_free(fixed);
    route_free(moving);
    route_free(none);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("route");
    TCase *tcase = tcase_create("route");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, template_becomes_the_destination);
    tcase_add_test(tcase, event_that_lacks_a_part_can_never_be_delivered);
    tcase_add_test(tcase, broken_templates_are_refused_with_the_place);
    tcase_add_test(tcase, number_of_parts_is_bounded);
    tcase_add_test(tcase, template_without_names_is_static);
    return run_suite(suite);
}
