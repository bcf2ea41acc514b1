#include "relay/base/libraries.h"

#include "tests/support/run_suite.h"

#include <string.h>

static const struct {
    int version;
    const char *mended; /* by which release; NULL: nothing is wrong */
} versions[] = {
    {140019, "14.20"}, {140020, NULL}, {150000, "15.15"}, {150010, "15.15"}, {150011, "15.15"},
    {150014, "15.15"}, {150015, NULL}, {150018, NULL},    {160010, "16.11"}, {160011, NULL},
    {170006, "17.7"},  {170007, NULL}, {180000, "18.1"},  {180001, NULL},    {190000, NULL},
};

START_TEST(libpq_before_the_release_of_its_major_that_mends_it_is_bad)
{
    char text[200] = "";
    ck_assert_int_eq(libraries_libpq_is_bad(versions[_i].version, text, sizeof text), versions[_i].mended != NULL);
    if (versions[_i].mended)
        ck_assert_ptr_nonnull(strstr(text, versions[_i].mended));
    else
        ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(libraries_are_shown_with_their_versions)
{
    char text[200];
    libraries_show(text, sizeof text);
    for (const char *const *name =
             (const char *const[]){"libpq ", "librdkafka ", "libcurl ", "hiredis ", "libfyaml ", "jansson ", NULL};
         *name; name++) {
        const char *found = strstr(text, *name);
        ck_assert_msg(found && strspn(found + strlen(*name), "0123456789") > 0, "%s", text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("libraries");
    TCase *tcase = tcase_create("libraries");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, libpq_before_the_release_of_its_major_that_mends_it_is_bad, 0,
                        (int)(sizeof versions / sizeof versions[0]));
    tcase_add_test(tcase, libraries_are_shown_with_their_versions);
    return run_suite(suite);
}
