/* Every file in tests/unit/config/broken_configs is wrong in one way and says in its first line, `# expect: FILE:...`,
 * what pgcourier says to it. */
#include "relay/base/file.h"
#include "relay/config/config.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define DIRECTORY "tests/unit/config/broken_configs/"
#define EXPECT "# expect: FILE"
#define WANTED_COUNT 50

static struct dirent **files;
static int file_count;

static int is_config(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, ".yaml") == 0;
}

START_TEST(broken_configuration_gets_exactly_its_message)
{
    char path[512], expected[600];
    struct error err = {.kind = ERROR_NONE};
    size_t size;
    snprintf(path, sizeof path, DIRECTORY "%s", files[_i]->d_name);
    char *text = file_read(path, 100000, &size, &err);
    ck_assert_msg(text != NULL, "%s: %s", path, err.text);
    ck_assert_msg(strncmp(text, EXPECT, strlen(EXPECT)) == 0, "%s: the first line is not " EXPECT "...", path);
    snprintf(expected, sizeof expected, "%s%.*s", path, (int)(strcspn(text, "\n") - strlen(EXPECT)),
             text + strlen(EXPECT));
    struct config *config = config_load(path, &err);
    ck_assert_msg(config == NULL, "%s is not broken", path);
    ck_assert_str_eq(err.text, expected);
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    free(text);
}
END_TEST

START_TEST(there_are_at_least_fifty)
{
    ck_assert_int_ge(file_count, WANTED_COUNT);
}
END_TEST

int main(void)
{
    /* What the files count on. */
    unsetenv("PGCOURIER_UNSET");
    unsetenv("PGSSLMODE");
    setenv("PGCOURIER_BAD", "5x", 1);
    file_count = scandir(DIRECTORY, &files, is_config, alphasort);
    Suite *suite = suite_create("broken_configs");
    TCase *tcase = tcase_create("broken_configs");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, there_are_at_least_fifty);
    tcase_add_loop_test(tcase, broken_configuration_gets_exactly_its_message, 0, file_count);
    int status = run_suite(suite);
    for (int i = 0; i < file_count; i++)
        free(files[i]);
    free(files);
    return status;
}
