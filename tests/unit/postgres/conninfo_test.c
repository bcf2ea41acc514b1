#include "relay/postgres/conninfo.h"
#include "tests/support/run_suite.h"

#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- by the options alone ---- */

static const struct {
    const char *sslmode;
    bool exposed[ROOTS_PUBLIC + 1];
} modes[] = {
    {"disable", {true, true, true}},  {"allow", {true, true, true}},       {"prefer", {true, true, true}},
    {"require", {true, false, true}}, {"verify-ca", {false, false, true}}, {"verify-full", {false, false, false}},
};

START_TEST(only_modes_that_verify_are_safe)
{
    for (enum conninfo_roots roots = ROOTS_NONE; roots <= ROOTS_PUBLIC; roots++) {
        struct conninfo_security security = {.host = "db.example", .sslmode = modes[_i].sslmode, .roots = roots};
        struct exposure exposure;
        ck_assert_int_eq(conninfo_security_exposed(&security, &exposure), modes[_i].exposed[roots]);
        if (modes[_i].exposed[roots])
            ck_assert_ptr_nonnull(strstr(exposure.why, modes[_i].sslmode));
        security.host = "127.0.0.1";
        ck_assert(!conninfo_security_exposed(&security, &exposure));
    }
}
END_TEST

static const struct {
    const char *host, *hostaddr, *exposed; /* NULL: nobody */
} hosts[] = {
    {NULL, NULL, NULL},
    {"localhost", NULL, NULL},
    {"/run/postgresql", NULL, NULL},
    {"@abstract", NULL, NULL},
    {"/run/a,localhost,::1,", NULL, NULL},
    {"db.example", NULL, "db.example"},
    {"/run/a,db1.example,127.0.0.1,db2.example", NULL, "db1.example, db2.example"},
    {"db.example", "127.0.0.1", NULL}, /* the address counts */
    {"localhost", "10.0.0.1", "10.0.0.1"},
    {NULL, "10.0.0.1,10.0.0.2", "10.0.0.1, 10.0.0.2"},
    {"a.example,b.example", "127.0.0.1,", "b.example"},
    {"a.example,localhost", ",10.0.0.1", "a.example, 10.0.0.1"},
};

START_TEST(hosts_are_those_that_libpq_would_call)
{
    struct conninfo_security security = {
        .host = hosts[_i].host, .hostaddr = hosts[_i].hostaddr, .sslmode = "prefer", .gssencmode = "prefer"};
    struct exposure exposure;
    bool exposed = conninfo_security_exposed(&security, &exposure);
    ck_assert_int_eq(exposed, hosts[_i].exposed != NULL);
    if (exposed)
        ck_assert_str_eq(exposure.hosts, hosts[_i].exposed);
    security.gssencmode = "require";
    ck_assert(!conninfo_security_exposed(&security, &exposure));
}
END_TEST

/* ---- as libpq reads them ---- */

static const char *const variables[] = {"PGHOST",       "PGHOSTADDR", "PGSSLMODE",     "PGREQUIRESSL", "PGSSLROOTCERT",
                                        "PGGSSENCMODE", "PGSERVICE",  "PGSERVICEFILE", "PGPASSFILE"};
static char folder[] = "/tmp/conninfo_test.XXXXXX";

static const char *path_of(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *write_file(const char *name, const char *text)
{
    const char *path = path_of(name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static void write_link(const char *name, const char *to)
{
    unlink(path_of(name));
    ck_assert_int_eq(symlink(to, path_of(name)), 0);
}

static void start(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    setenv("HOME", folder, 1);
    setenv("PGSERVICEFILE",
           write_file("services", "[far]\nhost=far.example\n[safe]\nhost=safe.example\nsslmode=verify-full\n"), 1);
}

static const struct {
    const char *database, *name, *value; /* of a variable; NULL: none */
    const char *exposed;                 /* NULL: nobody */
    const char *why;
} strings[] = {
    {"", NULL, NULL, NULL, NULL},
    {"shop", NULL, NULL, NULL, NULL},
    {"shop", "PGHOST", "db.example", "db.example", "sslmode=prefer"},
    {"host=localhost", "PGHOST", "db.example", NULL, NULL},
    {"host=db.example", NULL, NULL, "db.example", "sslmode=prefer"},
    {"host=db.example", "PGSSLMODE", "verify-full", NULL, NULL},
    {"host=db.example", "PGSSLMODE", "require", "db.example", "sslmode=require"},
    {"host=db.example", "PGSSLMODE", "allow", "db.example", "sslmode=allow"},
    {"host=db.example", "PGSSLMODE", "disable", "db.example", "sslmode=disable"},
    {"host=db.example", "PGREQUIRESSL", "1", "db.example", "sslmode=require"},
    {"host=db.example sslmode=disable", "PGSSLMODE", "verify-full", "db.example", "sslmode=disable"},
    {"host=db.example hostaddr=127.0.0.1", NULL, NULL, NULL, NULL},
    {"host=db.example", "PGHOSTADDR", "127.0.0.1", NULL, NULL},
    {"host=db.example", "PGGSSENCMODE", "disable", "db.example", "sslmode=prefer"},
    {"postgresql://u:s3cret@db.example:6432/shop", NULL, NULL, "db.example", "sslmode=prefer"},
    {"postgresql://u:a@s3cret@db.example/shop", NULL, NULL, "db.example", "sslmode=prefer"},
    {"postgresql://a.example:1,b.example:2/shop?sslmode=allow", NULL, NULL, "a.example, b.example", "sslmode=allow"},
    {"postgres://db.example/shop?sslmode=verify-ca", NULL, NULL, NULL, NULL},
    {"postgresql://%2Frun%2Fpostgresql/shop", NULL, NULL, NULL, NULL},
    {"service=far", NULL, NULL, "far.example", "sslmode=prefer"},
    {"service=safe", NULL, NULL, NULL, NULL},
    {"service=safe sslmode=prefer", NULL, NULL, "safe.example", "sslmode=prefer"},
    {"service=safe", "PGSSLMODE", "disable", NULL, NULL}, /* a service goes before the environment */
    {"", "PGSERVICE", "far", "far.example", "sslmode=prefer"},
    {"service=nobody", NULL, NULL, NULL, NULL},
    {"host=db.example channel_binding=require password=x", NULL, NULL, "db.example", "sslmode=prefer"},
    {"host=db.example nonsense", NULL, NULL, NULL, NULL}, /* refused elsewhere */
};

START_TEST(strings_files_and_environment_are_put_together_as_libpq_does)
{
    start();
    if (strings[_i].name)
        setenv(strings[_i].name, strings[_i].value, 1);
    struct exposure exposure;
    bool exposed = conninfo_exposed(strings[_i].database, &exposure);
    ck_assert_msg(exposed == (strings[_i].exposed != NULL), "%s", strings[_i].database);
    if (exposed) {
        ck_assert_str_eq(exposure.hosts, strings[_i].exposed);
        ck_assert_ptr_nonnull(strstr(exposure.why, strings[_i].why));
    }
    bool falls_back = exposed && (strstr(strings[_i].why, "=allow") || strstr(strings[_i].why, "=prefer"));
    struct error err;
    ck_assert_msg(conninfo_check(strings[_i].database, &err) == !falls_back, "%s", strings[_i].database);
    if (!falls_back)
        return;
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, strings[_i].exposed));
    ck_assert_ptr_nonnull(strstr(err.text, strings[_i].why));
    ck_assert_ptr_null(strstr(err.text, "s3cret"));
}
END_TEST

START_TEST(require_verifies_only_with_root_certificates_that_are_there)
{
    start();
    struct exposure exposure;
    char database[400];
    ck_assert(conninfo_exposed("host=db.example sslmode=require sslrootcert=/nonexistent", &exposure));
    snprintf(database, sizeof database, "host=db.example sslmode=require sslrootcert=%s", write_file("ca.pem", ""));
    ck_assert(!conninfo_exposed(database, &exposure));
    write_link("system.pem", "/etc/ssl/certs/ca-certificates.crt"); /* of a package that this needs to be built */
    snprintf(database, sizeof database, "host=db.example sslmode=verify-ca sslrootcert=%s", path_of("system.pem"));
    ck_assert(conninfo_exposed(database, &exposure));
    ck_assert_ptr_nonnull(strstr(exposure.why, "for any host: sslmode=verify-ca"));
    ck_assert(conninfo_exposed("host=db.example sslmode=require", &exposure));
    snprintf(database, sizeof database, "%s/.postgresql", folder);
    ck_assert_int_eq(mkdir(database, 0700), 0);
    write_file(".postgresql/root.crt", "");
    ck_assert(!conninfo_exposed("host=db.example sslmode=require", &exposure));
    ck_assert(conninfo_exposed("host=db.example sslmode=prefer", &exposure));
    unlink(path_of(".postgresql/root.crt"));
    rmdir(database);
}
END_TEST

START_TEST(without_a_home_in_the_environment_it_is_that_of_the_account)
{
    start();
    const struct passwd *user = getpwuid(geteuid());
    ck_assert_ptr_nonnull(user);
    char path[400];
    snprintf(path, sizeof path, "%s/.postgresql/root.crt", user->pw_dir);
    struct exposure exposure;
    setenv("HOME", "", 1);
    ck_assert_int_eq(conninfo_exposed("host=db.example sslmode=require", &exposure), access(path, F_OK) != 0);
    unsetenv("HOME");
    ck_assert_int_eq(conninfo_exposed("host=db.example sslmode=require", &exposure), access(path, F_OK) != 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("conninfo");
    TCase *tcase = tcase_create("conninfo");
    if (!mkdtemp(folder))
        return EXIT_FAILURE;
    tcase_add_loop_test(tcase, only_modes_that_verify_are_safe, 0, (int)(sizeof modes / sizeof modes[0]));
    tcase_add_loop_test(tcase, hosts_are_those_that_libpq_would_call, 0, (int)(sizeof hosts / sizeof hosts[0]));
    tcase_add_loop_test(tcase, strings_files_and_environment_are_put_together_as_libpq_does, 0,
                        (int)(sizeof strings / sizeof strings[0]));
    tcase_add_test(tcase, require_verifies_only_with_root_certificates_that_are_there);
    tcase_add_test(tcase, without_a_home_in_the_environment_it_is_that_of_the_account);
    suite_add_tcase(suite, tcase);
    int status = run_suite(suite);
    unlink(path_of("services"));
    unlink(path_of("ca.pem"));
    unlink(path_of("system.pem"));
    rmdir(folder);
    return status;
}
