/* Running out of memory while a claim is asked for, read and settled. */
#include "tests/unit/memory/allocation.h"
#include "tests/unit/stage/per_key_stage.h"

static void settle_all(void)
{
    const int64_t done[] = {1, 2, 3};
    const struct span resumed[] = {SPAN_LITERAL("k")};
    const struct settle_failure failure = {.id = 3, .key = SPAN_LITERAL("f"), .why = SPAN_LITERAL("refused")};
    const struct settlement all = {.done = done,
                                   .done_count = 2,
                                   .buried = &failure,
                                   .buried_count = 1,
                                   .parked = &failure,
                                   .parked_count = 1,
                                   .resumed_keys = resumed,
                                   .resumed_key_count = 1};
    ck_assert_uint_eq(ordering_per_key.settle(o, &all, arena, statements), 5);
}

static void claim_and_settle(void)
{
    set_up();
    probe(1000, 2, false, 0);
    const struct span busy[] = {SPAN_LITERAL("b")}, follow[] = {SPAN_LITERAL("f")};
    const int64_t keyless_ids[] = {3};
    const struct claim_request request = {.max_keys = 10,
                                          .busy_keys = busy,
                                          .busy_key_count = 1,
                                          .busy_keyless_ids = keyless_ids,
                                          .busy_keyless_count = 1,
                                          .follow_keys = follow,
                                          .follow_key_count = 1};
    claim_for(&request);
    for (size_t i = 0; i < plan.section_count; i++) {
        PGresult *res = lock_row_of(1, 900);
        set_text(res, 0, MISSED, "{{k1,5,7}}");
        set_text(res, 0, LOW, "{{k,5,5}}");
        ck_assert(take_result(i, res));
    }
    for (int64_t id = 1; id <= 3; id++)
        ck_assert(take_row(event_row(id, "a")));
    finish_claim();
    settle_all();
    ordering_per_key.released(o, 50, 60, 5 * SECOND_US);
    tear_down();
}

static const struct scene scenes[] = {
    {"a claim and its settlement", claim_and_settle},
};

START_TEST(no_memory_is_said_once_and_ends_the_process)
{
    allocation_fail_each(&scenes[_i]);
}
END_TEST

int main(void)
{
    return allocation_run("allocation_ordering", no_memory_is_said_once_and_ends_the_process,
                          (int)(sizeof scenes / sizeof scenes[0]));
}
