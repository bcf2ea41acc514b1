/* The exec sink: what a command writes on standard output is the answer, where somebody asks for it. */
#include "tests/contract/exec/exec_setup.h"

static struct delivery *asked(struct contract *c, size_t max)
{
    struct delivery *d = contract_add(c, "key", span_of("{}"));
    d->response = response_new(c->arena, max);
    return d;
}

static void answer_is(const char *script, size_t max, struct span wanted)
{
    use(script);
    struct contract *c = contract_open(&exec_setup);
    struct delivery *d = asked(c, max);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_msg(d->verdict == VERDICT_ACKED, "%s", d->cause ? d->cause->text : "no verdict");
    ck_assert(!d->response->cut);
    struct span said = response_span(d->response);
    ck_assert_msg(span_equal(said, wanted), "%.*s", (int)said.size, said.data);
    contract_end(c);
}

START_TEST(standard_output_is_the_answer)
{
    answer_is("printf '{\"a\":'; sleep 0.1; printf ' 1}'", 100, SPAN_LITERAL("{\"a\": 1}"));
    answer_is("printf '\\0'", 1, (struct span){"", 1});
    answer_is("echo no >&2", 100, (struct span){NULL, 0});
}
END_TEST

START_TEST(answer_may_be_larger_than_a_pipe)
{
    enum { SIZE = 1 << 20 };
    char *wanted = malloc(SIZE);
    memset(wanted, 'x', SIZE);
    answer_is("head -c 1048576 /dev/zero | tr '\\0' x", SIZE, (struct span){wanted, SIZE});
    free(wanted);
}
END_TEST

START_TEST(too_long_an_answer_is_told_to_be_and_the_command_comes_to_its_end)
{
    use("head -c 1000000 /dev/zero; echo done > ended");
    struct contract *c = contract_open(&exec_setup);
    struct delivery *d = asked(c, 1000);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    ck_assert(d->response->cut);
    file_is("ended", "done\n");
    contract_end(c);
}
END_TEST

START_TEST(command_that_leaves_somebody_behind_who_writes_on_does_not_keep_the_relay)
{
    use("echo first; (while :; do echo more; done) & exit 0");
    struct contract *c = contract_open(&exec_setup);
    struct delivery *d = asked(c, 100000);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    ck_assert_int_eq(memcmp(d->response->data, "first\n", 6), 0);
    contract_end(c);
}
END_TEST

START_TEST(batches_have_no_answer_of_each)
{
    const char *why = NULL;
    settings.max_response = 5;
    ck_assert_int_eq(sink_exec.response_max(&settings, &why), 5);
    settings.batch = 2;
    ck_assert_int_eq(sink_exec.response_max(&settings, &why), 0);
    ck_assert_str_eq(why, "its commands get several events at once (batch)");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("exec responses");
    TCase *tcase = exec_tcase("exec responses");
    tcase_add_test(tcase, standard_output_is_the_answer);
    tcase_add_test(tcase, answer_may_be_larger_than_a_pipe);
    tcase_add_test(tcase, too_long_an_answer_is_told_to_be_and_the_command_comes_to_its_end);
    tcase_add_test(tcase, command_that_leaves_somebody_behind_who_writes_on_does_not_keep_the_relay);
    tcase_add_test(tcase, batches_have_no_answer_of_each);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
