/* Which answers may be a payload, and what becomes of the others. */
#include "relay/deliver/next_payload.h"

#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>

static struct arena *arena;
static struct delivery d;
static struct table next;

static void set_up(void)
{
    static char name[] = "public.next";
    arena = arena_new();
    d = (struct delivery){.arena = arena, .response = response_new(arena, 100), .verdict = VERDICT_ACKED};
    next = (struct table){.plain_name = name, .payload_kind = PAYLOAD_JSON, .payload_is_jsonb = true};
}

static void tear_down(void)
{
    arena_free(arena);
}

static void answer(struct span text)
{
    response_add(d.response, text);
    next_payload_judge(&next, &d);
}

static const struct {
    enum payload_kind kind;
    bool jsonb;
    const char *text; /* NULL: a NUL byte */
    const char *why;  /* NULL: fits */
} answers[] = {
    {PAYLOAD_JSON, true, "{\"a\": 1}", NULL},
    {PAYLOAD_JSON, true, "", NULL},
    {PAYLOAD_JSON, true, "no",
     "the answer cannot be the payload of public.next: not JSON that jsonb takes: byte 1 of 2"},
    {PAYLOAD_JSON, true, "\"\\u0000\"",
     "the answer cannot be the payload of public.next: not JSON that jsonb takes: byte 8 of 8"},
    {PAYLOAD_JSON, false, "\"\\u0000\"", NULL},
    {PAYLOAD_TEXT, false, "no", NULL},
    {PAYLOAD_TEXT, false, "\xff", "the answer cannot be the payload of public.next: not UTF-8"},
    {PAYLOAD_TEXT, false, NULL, "the answer cannot be the payload of public.next: a text with a NUL byte"},
    {PAYLOAD_BYTES, false, "\xff", NULL},
    {PAYLOAD_BYTES, false, NULL, NULL},
};

START_TEST(answer_that_its_column_does_not_take_is_a_failure_of_the_event)
{
    next.payload_kind = answers[_i].kind;
    next.payload_is_jsonb = answers[_i].jsonb;
    answer(answers[_i].text ? span_of(answers[_i].text) : (struct span){"", 1});
    ck_assert_int_eq(d.verdict, answers[_i].why ? VERDICT_UNKNOWN : VERDICT_ACKED);
    if (!answers[_i].why)
        return;
    ck_assert_str_eq(d.cause->text, answers[_i].why);
    ck_assert_int_eq(d.cause->kind, ERROR_REFUSED);
}
END_TEST

START_TEST(answer_that_is_too_long_is_a_failure_and_not_cut_off)
{
    char text[60];
    memset(text, '1', sizeof text);
    response_add(d.response, (struct span){text, sizeof text});
    response_add(d.response, (struct span){text, 40});
    ck_assert(!d.response->cut);
    ck_assert_uint_eq(d.response->room, 100);
    answer((struct span){text, 1});
    ck_assert_int_eq(d.verdict, VERDICT_UNKNOWN);
    ck_assert_str_eq(d.cause->text,
                     "the answer cannot be the payload of public.next: longer than max_response, which is 100 bytes");
}
END_TEST

START_TEST(what_failed_anyway_keeps_its_cause)
{
    d.verdict = VERDICT_RETRY;
    answer(span_of("no"));
    ck_assert_int_eq(d.verdict, VERDICT_RETRY);
    ck_assert_ptr_null(d.cause);
}
END_TEST

START_TEST(pieces_are_put_together)
{
    char wanted[101] = "";
    for (int i = 0; i < 100; i++) {
        wanted[i] = (char)('a' + i % 26);
        response_add(d.response, (struct span){wanted + i, 1});
    }
    response_add(d.response, (struct span){NULL, 0});
    struct span whole = response_span(d.response);
    ck_assert(span_equal(whole, span_of(wanted)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("next_payload");
    TCase *tcase = tcase_create("next_payload");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, answer_that_its_column_does_not_take_is_a_failure_of_the_event, 0,
                        sizeof answers / sizeof answers[0]);
    tcase_add_test(tcase, answer_that_is_too_long_is_a_failure_and_not_cut_off);
    tcase_add_test(tcase, what_failed_anyway_keeps_its_cause);
    tcase_add_test(tcase, pieces_are_put_together);
    return run_suite(suite);
}
