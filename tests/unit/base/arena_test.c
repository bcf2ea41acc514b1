#include "relay/base/arena.h"

#include "tests/support/run_suite.h"

#include <check.h>
#include <stdint.h>
#include <stdlib.h>

static struct arena *arena;

static void setup(void)
{
    arena = arena_new();
}

static void teardown(void)
{
    arena_free(arena);
}

static bool holds_only(const unsigned char *bytes, size_t size, unsigned char value)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

START_TEST(memory_is_zeroed_aligned_and_its_own)
{
    unsigned char *last = NULL;
    size_t last_size = 0;
    for (size_t size = 0; size < 3000; size += 7) {
        unsigned char *p = arena_alloc(arena, size);
        ck_assert_uint_eq((uintptr_t)p % _Alignof(max_align_t), 0);
        ck_assert(holds_only(p, size, 0));
        memset(p, 0xAA, size);
        ck_assert(holds_only(last, last_size, 0xAA));
        last = p;
        last_size = size;
    }
}
END_TEST

START_TEST(large_object_does_not_end_the_block_being_filled)
{
    arena_alloc(arena, 100);
    size_t before = arena_bytes(arena);
    arena_alloc(arena, 1 << 20);
    ck_assert_uint_ge(arena_bytes(arena), before + (1 << 20));
    before = arena_bytes(arena);
    arena_alloc(arena, 100);
    ck_assert_uint_eq(arena_bytes(arena), before);
}
END_TEST

START_TEST(copy_ends_with_nul_and_absent_stays_absent)
{
    char bytes[] = {'a', '\0', 'b'};
    struct span copy = arena_copy(arena, (struct span){bytes, sizeof bytes});
    bytes[0] = 'x';
    ck_assert_uint_eq(copy.size, 3);
    ck_assert_int_eq(memcmp(copy.data, "a\0b\0", 4), 0);
    ck_assert_ptr_null(arena_copy(arena, (struct span){NULL, 0}).data);
    ck_assert_str_eq(arena_copy(arena, span_of("")).data, "");
}
END_TEST

START_TEST(printf_has_room_for_any_length)
{
    char *text = arena_printf(arena, "%0*d|%s", 100000, 7, "end");
    ck_assert_uint_eq(strlen(text), 100004);
    ck_assert_str_eq(text + 99999, "7|end");
}
END_TEST

START_TEST(impossible_size_ends_the_process_with_70)
{
    arena_array(arena, SIZE_MAX / 2, 3);
}
END_TEST

START_TEST(impossible_new_ends_the_process_with_70)
{
    ck_assert_ptr_null(memory_array(SIZE_MAX, SIZE_MAX));
}
END_TEST

START_TEST(impossible_object_ends_the_process_with_70)
{
    arena_alloc(arena, SIZE_MAX);
}
END_TEST

START_TEST(object_that_leaves_no_room_for_its_block_ends_the_process_with_70)
{
    arena_alloc(arena, SIZE_MAX - 30);
}
END_TEST

START_TEST(nothing_is_memory_too)
{
    char *none = memory_new(0), *fewer = memory_resize(memory_new(8), 0, 1);
    ck_assert_ptr_nonnull(none);
    ck_assert_ptr_nonnull(fewer);
    free(none);
    free(fewer);
}
END_TEST

START_TEST(what_cannot_be_printed_is_an_empty_text)
{
    ck_assert_str_eq(arena_printf(arena, "a%ls", L"\x4e2d"), ""); /* no such character in the locale "C" */
}
END_TEST

START_TEST(text_is_copied_and_null_stays_null)
{
    char *copy = memory_text("abc");
    ck_assert_str_eq(copy, "abc");
    ck_assert_ptr_null(memory_text(NULL));
    free(copy);
}
END_TEST

START_TEST(null_arena_may_be_freed)
{
    arena_free(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arena");
    TCase *tcase = tcase_create("arena");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, memory_is_zeroed_aligned_and_its_own);
    tcase_add_test(tcase, large_object_does_not_end_the_block_being_filled);
    tcase_add_test(tcase, copy_ends_with_nul_and_absent_stays_absent);
    tcase_add_test(tcase, printf_has_room_for_any_length);
    tcase_add_test(tcase, text_is_copied_and_null_stays_null);
    tcase_add_test(tcase, null_arena_may_be_freed);
    tcase_add_test(tcase, nothing_is_memory_too);
    tcase_add_test(tcase, what_cannot_be_printed_is_an_empty_text);
    tcase_add_exit_test(tcase, impossible_object_ends_the_process_with_70, 70);
    tcase_add_exit_test(tcase, object_that_leaves_no_room_for_its_block_ends_the_process_with_70, 70);
    tcase_add_exit_test(tcase, impossible_size_ends_the_process_with_70, 70);
    tcase_add_exit_test(tcase, impossible_new_ends_the_process_with_70, 70);
    return run_suite_forked(suite);
}
