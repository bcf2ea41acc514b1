/* The four ways to hold a key: which one a claim has, and what the page says of them. */
#include "relay/queue/holding.h"

#include "relay/queue/queue.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/architecture_page.h"

static bool shared;

bool __wrap_db_is_shared(const struct db *db);

bool __wrap_db_is_shared(const struct db *db)
{
    (void)db;
    return shared;
}

static const struct {
    bool leases, locks_rows;
} queues[] = {{false, false}, {false, true}, {true, false}};

static struct ordering ordering;
static struct queue queue;

static void set_up(void)
{
    shared = false;
    queue = (struct queue){.ordering = &ordering};
}

START_TEST(pooler_makes_no_difference_but_to_locks_of_the_session)
{
    queue.leases.used = queues[_i].leases;
    ordering.locks_rows = queues[_i].locks_rows;
    const struct holding *own = holding_of_claim(&queue, NULL);
    ck_assert_ptr_eq(own, holding_of_queue(&queue));
    shared = true;
    ck_assert_int_eq(holding_of_claim(&queue, NULL) == own, _i > 0);
    ck_assert_ptr_eq(own, holding_of_queue(&queue));
}
END_TEST

/* Only a claim knows its connection: see holding_of_queue(). */
START_TEST(pooler_does_not_change_what_is_asked_of_the_queue)
{
    ordering.locks_rows = false;
    const struct holding *one = holding_of_queue(&queue);
    shared = true;
    const struct holding *other = holding_of_claim(&queue, NULL);
    ck_assert(one->waits_for_blocked_rows && other->waits_for_blocked_rows);
    ck_assert(!one->commits_before_delivery && !other->commits_before_delivery);
    ck_assert(!one->claims_by_room && !other->claims_by_room);
    ck_assert(!one->has_tokens && !other->has_tokens);
    ck_assert(!one->may_expire && !other->may_expire);
    ck_assert(!one->belongs_to_side_connection && !other->belongs_to_side_connection);
    ck_assert(one->outlives_transaction && !other->outlives_transaction);
}
END_TEST

START_TEST(architecture_page_has_the_table_of_holdings)
{
    assert_page_has(holding_print);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("holding");
    TCase *tcase = tcase_create("holding");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_loop_test(tcase, pooler_makes_no_difference_but_to_locks_of_the_session, 0,
                        sizeof queues / sizeof queues[0]);
    tcase_add_test(tcase, pooler_does_not_change_what_is_asked_of_the_queue);
    tcase_add_test(tcase, architecture_page_has_the_table_of_holdings);
    return run_suite(suite);
}
