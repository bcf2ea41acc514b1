/* What a queue does while another relay serves its table with other locks. */
#include "relay/side/upkeep.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/scripted_db.h"
#include "tests/unit/stage/upkeep_stage.h"

/* What is answered while `other` is in the way; NULL: nobody is. */
static void hear_who_serves(const char *other)
{
    static char names[4][8] = {"refusal", "tbl", "class", "said"};
    PGresAttDesc columns[4] = {{.name = names[0]}, {.name = names[1]}, {.name = names[2]}, {.name = names[3]}};
    PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert(PQsetResultAttrs(res, 4, columns));
    add_text(res, 0, 0, other);
    add_text(res, 0, 1, other ? "17" : NULL);
    add_text(res, 0, 2, other ? "7" : NULL);
    add_text(res, 0, 3, other ? "f" : NULL);
    queue->upkeep->task = UPKEEP_SERVING;
    queue->upkeep->began_at = NOW;
    upkeep_take(queue, res, NOW);
    upkeep_end(queue, NULL, NOW);
    PQclear(res);
}

START_TEST(nothing_is_claimed_while_another_relay_is_in_the_way)
{
    queue->pause.known = true;
    hear_who_serves("somebody");
    ck_assert(queue->pause.on);
    queue_found_paused(queue, NOW);
    upkeep_hear(queue);
    ck_assert_int_eq(upkeep_due_at(queue), queue->upkeep->due_at[UPKEEP_SERVING]); /* nobody looks for pauses */
    look(NULL, 0);
    ck_assert(queue->pause.on);
    hear_who_serves(NULL);
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_LOOK], NOW);
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_SERVING], INSTANT_NEVER);
    queue->upkeep->began_at = NOW + 1;
    look(NULL, 0);
    ck_assert(!queue->pause.on);
}
END_TEST

START_TEST(what_cannot_be_shown_is_not_served_but_for_want_of_a_right)
{
    struct error err;
    error_set(&err, ERROR_PERMISSION, "no");
    queue->upkeep->task = UPKEEP_SERVING;
    upkeep_end(queue, &err, NOW);
    ck_assert(!queue->pause.on);
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_SERVING], INSTANT_NEVER);
    error_set(&err, ERROR_REFUSED, "no");
    upkeep_end(queue, &err, NOW);
    ck_assert(queue->pause.on);
    ck_assert_int_eq(queue->upkeep->due_at[UPKEEP_LOOK], INSTANT_NEVER);
    ck_assert_int_lt(queue->upkeep->due_at[UPKEEP_SERVING], INSTANT_NEVER);
}
END_TEST

/* ---- on the connection ---- */

int main(void)
{
    Suite *suite = suite_create("upkeep_serving");
    TCase *tcase = tcase_create("upkeep_serving");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, nothing_is_claimed_while_another_relay_is_in_the_way);
    tcase_add_test(tcase, what_cannot_be_shown_is_not_served_but_for_want_of_a_right);
    return run_suite(suite);
}
