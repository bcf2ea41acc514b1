/* The lists of batches: who walks over all of them sees each once, in order, and may let go of what it sees. */
#include "relay/queue/holds.h"

#include "relay/queue/batch.h"
#include "tests/support/run_suite.h"

#define CLAIMS 2

static struct batch *claimed[CLAIMS];
static struct holds holds;

static void set_up(void)
{
    holds = (struct holds){0};
    holds_init(&holds, CLAIMS);
    for (size_t i = 0; i < CLAIMS; i++) {
        claimed[i] = NULL;
        holds.claimed[i] = &claimed[i];
    }
}

static void tear_down(void)
{
    holds_done(&holds);
}

static struct batch *put(struct batch **list)
{
    struct batch *batch = batch_new(4096, NULL, NULL);
    holds_push(list, batch);
    return batch;
}

START_TEST(walk_sees_claims_then_leases_then_orphans)
{
    struct batch *orphan = put(&holds.orphans), *leased = put(&holds.leased);
    struct batch *older = put(&claimed[1]), *newer = put(&claimed[1]);
    struct batch *expected[] = {newer, older, leased, orphan};
    struct holds_walk walk = holds_walk(&holds);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        ck_assert_ptr_eq(holds_next(&walk), expected[i]);
    ck_assert_ptr_null(holds_next(&walk));
}
END_TEST

START_TEST(what_the_walk_has_returned_may_be_freed)
{
    put(&claimed[0]);
    put(&claimed[0]);
    put(&claimed[1]);
    size_t seen = 0;
    struct holds_walk walk = holds_walk(&holds);
    for (; holds_next(&walk); seen++)
        batch_free(holds_pop(&claimed[seen == 2]));
    ck_assert_uint_eq(seen, 3);
    ck_assert(holds_are_empty(&holds));
}
END_TEST

START_TEST(one_orphan_is_enough_to_hold_something)
{
    ck_assert(holds_are_empty(&holds));
    put(&holds.orphans);
    ck_assert(!holds_are_empty(&holds));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("holds");
    TCase *tcase = tcase_create("holds");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, walk_sees_claims_then_leases_then_orphans);
    tcase_add_test(tcase, what_the_walk_has_returned_may_be_freed);
    tcase_add_test(tcase, one_orphan_is_enough_to_hold_something);
    return run_suite(suite);
}
