#include "relay/queue/keyset.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#include <stdio.h>

static struct keyset set;

static void set_up(void)
{
    keyset_init(&set, 3);
}

static void tear_down(void)
{
    keyset_done(&set);
}

static bool put(const char *key, uint64_t hash, instant_us at)
{
    return keyset_put(&set, span_of(key), hash, at, NULL);
}

START_TEST(key_is_held_once_with_its_latest_note)
{
    char key[] = "a";
    int owner;
    ck_assert(put(key, 1, 10));
    ck_assert(keyset_put(&set, span_of(key), 1, 20, &owner));
    key[0] = 'x'; /* the set has a copy */
    ck_assert_uint_eq(set.count, 1);
    ck_assert(span_equal(set.entries[0].key, span_of("a")));
    ck_assert_int_eq(set.entries[0].at, 20);
    ck_assert_ptr_eq(set.entries[0].owner, &owner);
}
END_TEST

START_TEST(keys_with_one_hash_are_kept_apart)
{
    ck_assert(put("a", 7, 0) && put("b", 7, 0) && put("", 7, 0));
    ck_assert_uint_eq(set.count, 3);
}
END_TEST

START_TEST(full_set_refuses_new_keys_and_takes_known_ones)
{
    ck_assert(put("a", 1, 0) && put("b", 2, 0) && put("c", 3, 0));
    ck_assert(!put("d", 4, 0));
    ck_assert(put("b", 2, 9));
    keyset_remove(&set, 0);
    ck_assert(put("d", 4, 0));
    ck_assert(!put("a", 1, 0));
}
END_TEST

START_TEST(keys_expire_at_their_time)
{
    ck_assert(put("a", 1, 10) && put("b", 2, 20) && put("c", 3, 30));
    keyset_expire(&set, 9);
    ck_assert_uint_eq(set.count, 3);
    keyset_expire(&set, 20);
    ck_assert_uint_eq(set.count, 1);
    ck_assert(span_equal(set.entries[0].key, span_of("c")));
}
END_TEST

START_TEST(key_is_found_wherever_removals_have_moved_it)
{
    struct keyset many;
    keyset_init(&many, 300);
    char key[16];
    /* Three chains' worth of hashes: every chain is long, and both ends and the middle of it are taken out. */
    for (unsigned i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "%u", i);
        ck_assert(keyset_put(&many, span_of(key), i % 3, i, NULL));
    }
    keyset_expire(&many, 99);
    for (size_t i = many.count; i-- > 0;)
        if (many.entries[i].at % 2 == 0)
            keyset_remove(&many, i);
    ck_assert_uint_eq(many.count, 100);
    for (unsigned i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "%u", i);
        const struct keyset_entry *entry = keyset_find(&many, span_of(key), i % 3);
        ck_assert(i >= 100 && i % 2 == 1 ? entry && entry->at == (instant_us)i : !entry);
    }
    keyset_done(&many);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("keyset");
    TCase *tcase = tcase_create("keyset");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, key_is_held_once_with_its_latest_note);
    tcase_add_test(tcase, keys_with_one_hash_are_kept_apart);
    tcase_add_test(tcase, full_set_refuses_new_keys_and_takes_known_ones);
    tcase_add_test(tcase, keys_expire_at_their_time);
    tcase_add_test(tcase, key_is_found_wherever_removals_have_moved_it);
    return run_suite(suite);
}
