/* Only the exec sink: what a command gets, what its end means, which go together. exec_end_test.c has what becomes of
 * it. */
#include "tests/contract/exec/exec_setup.h"

#include <jansson.h>

/* ---- what a command gets ---- */

START_TEST(standard_input_is_one_line_of_json)
{
    use("cat > out");
    struct contract *c = contract_open(&exec_setup);
    struct delivery *d = contract_add(c, "order-7", span_of("{\"total\": 12.50}"));
    contract_event(d)->payload_kind = PAYLOAD_JSON;
    all_arrive(c);
    file_is("out", "{\"id\":1,\"key\":\"order-7\",\"type\":null,\"destination\":\"anywhere\",\"payload\":{\"total\": "
                   "12.50},\"headers\":null,\"created_at\":\"1970-01-01T00:00:00.000000Z\",\"attempt\":1}\n");
}
END_TEST

START_TEST(environment_is_what_is_configured_and_the_event)
{
    setenv("SECRET_OF_THE_RELAY", "hunter2", 1);
    struct setting_pair pairs[] = {{(char[]){"HOME"}, (char[]){"/home/of/it"}}, {(char[]){"LANG"}, (char[]){"C"}}};
    settings.environment = (struct setting_map){pairs, 2};
    use("env | grep -v ^PWD= | grep -v ^_= | sort > out");
    struct contract *c = contract_open(&exec_setup);
    struct delivery *d = contract_add(c, "it's $(id) `id`; \"7\"", span_of("{}"));
    contract_event(d)->type = span_of("paid");
    contract_event(d)->attempt = 3;
    contract_event(d)->event_id = span_of("0b9a2c60");
    contract_event(d)->traceparent = span_of("00-4b");
    all_arrive(c);
    file_is("out", "HOME=/home/of/it\nLANG=C\nPATH=/usr/local/bin:/usr/bin:/bin\nPGCOURIER_ATTEMPT=3\n"
                   "PGCOURIER_DESTINATION=anywhere\nPGCOURIER_EVENTS=1\nPGCOURIER_EVENT_ID=0b9a2c60\nPGCOURIER_ID=1\n"
                   "PGCOURIER_KEY=it's $(id) `id`; \"7\"\nPGCOURIER_TRACEPARENT=00-4b\nPGCOURIER_TYPE=paid\n");
}
END_TEST

START_TEST(what_an_event_does_not_have_is_not_set)
{
    use("env | grep ^PGCOURIER_ | sort > out");
    struct contract *c = contract_open(&exec_setup);
    contract_add(c, NULL, (struct span){0})->destination = span_of("");
    all_arrive(c);
    file_is("out", "PGCOURIER_ATTEMPT=1\nPGCOURIER_EVENTS=1\nPGCOURIER_ID=1\n");
}
END_TEST

START_TEST(descriptors_are_the_three_standard_ones)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0); /* without O_CLOEXEC */
    use("for n in 0 1 2 3 4 5 6 7 8 9; do [ ! -e /proc/$$/fd/$n ] || list=\"$list $n\"; done; "
        "null=$(readlink /proc/$$/fd/1); echo $list $null > out");
    deliver_one("key");
    file_is("out", "0 1 2 /dev/null\n");
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(signals_are_as_in_a_new_session)
{
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &before);
    signal(SIGPIPE, SIG_IGN);
    use("sed -n 's/^Sig\\(Blk\\|Ign\\):\\t//p' /proc/self/status > out; ps -o pid=,pgid=,sid= -p $$ | "
        "tr -s ' ' '\\n' | sort -u | grep -c . >> out");
    deliver_one("key");
    sigprocmask(SIG_SETMASK, &before, NULL);
    file_is("out", "0000000000000000\n0000000000000000\n1\n");
}
END_TEST

START_TEST(working_directory_is_the_configured_one)
{
    settings.directory = (char[]){"/usr"};
    use("pwd > $DIR/out");
    deliver_one("key");
    file_is("out", "/usr\n");
}
END_TEST

START_TEST(arguments_are_passed_as_they_stand)
{
    char *texts[] = {(char[]){"sh"},
                     (char[]){"-c"},
                     (char[]){"printf '%s|' \"$@\" > $DIR/out"},
                     (char[]){"sh"},
                     (char[]){"$HOME {key}"},
                     (char[]){""},
                     (char[]){"*"},
                     NULL};
    use("");
    settings.command = (struct setting_list){texts, 7};
    deliver_one("key");
    file_is("out", "$HOME {key}||*|");
}
END_TEST

START_TEST(large_payload_that_nobody_reads_holds_up_nothing)
{
    use("exit 0");
    struct contract *c = contract_open(&exec_setup);
    size_t size = 8u << 20;
    char *payload = malloc(size);
    memset(payload, 'x', size);
    contract_add(c, "key", (struct span){payload, size});
    contract_add(c, "other", span_of("{}"));
    all_arrive(c);
    free(payload);
}
END_TEST

START_TEST(large_payload_is_read_whole)
{
    use("wc -c > out");
    struct contract *c = contract_open(&exec_setup);
    size_t size = 3u << 20;
    char *payload = malloc(size);
    memset(payload, 'x', size);
    struct delivery *d = contract_add(c, "key", (struct span){payload, size});
    contract_event(d)->payload_kind = PAYLOAD_TEXT;
    all_arrive(c);
    free(payload);
    char *text = file_text("out");
    ck_assert_int_gt(atol(text), 3 << 20);
    free(text);
}
END_TEST

/* ---- what its end means ---- */

static const struct {
    const char *script;
    enum verdict verdict;
    enum error_kind kind;
    const char *text; /* behind the program's path */
} ends[] = {
    {"exit 1", VERDICT_REJECTED, ERROR_REFUSED, ": exit code 1"},
    {"exit 255", VERDICT_REJECTED, ERROR_REFUSED, ": exit code 255"},
    {"exit 75", VERDICT_RETRY, ERROR_REFUSED, ": exit code 75"},
    {"echo first >&2; echo 'no such order' >&2; echo >&2; exit 2", VERDICT_REJECTED, ERROR_REFUSED,
     ": exit code 2: no such order"},
    {"printf 'a\\tb\\033[31m\\303\\251' >&2; exit 2", VERDICT_REJECTED, ERROR_REFUSED, ": exit code 2: a?b?[31m??"},
    {"echo not this; exit 2", VERDICT_REJECTED, ERROR_REFUSED, ": exit code 2"},
    {"exit 126", VERDICT_RETRY, ERROR_OVERLOADED, ": exit code 126, which shells use for a program that cannot be run"},
    {"there_is_no_such_program 2> /dev/null", VERDICT_RETRY, ERROR_OVERLOADED,
     ": exit code 127, which shells use for a program that cannot be run"},
    {"kill -SEGV $$", VERDICT_UNKNOWN, ERROR_REFUSED, ": ended by signal 11 (Segmentation fault)"},
    {"echo out of memory >&2; kill -KILL $$", VERDICT_UNKNOWN, ERROR_REFUSED,
     ": ended by signal 9 (Killed): out of memory"},
};

START_TEST(end_of_a_command_is_a_verdict)
{
    use(ends[_i].script);
    one_fails(ends[_i].verdict, ends[_i].kind, ends[_i].text);
}
END_TEST

START_TEST(exit_codes_mean_what_is_configured)
{
    static const struct {
        const char *key;
        enum verdict verdict;
        enum error_kind kind;
    } wanted[] = {{"9", VERDICT_ACKED, ERROR_NONE},        {"75", VERDICT_REJECTED, ERROR_REFUSED},
                  {"69", VERDICT_RETRY, ERROR_OVERLOADED}, {"127", VERDICT_RETRY, ERROR_OVERLOADED},
                  {"1", VERDICT_RETRY, ERROR_REFUSED},     {"0", VERDICT_ACKED, ERROR_NONE}};
    struct setting_pair pairs[] = {{(char[]){"9"}, (char[]){"ack"}},
                                   {(char[]){"75"}, (char[]){"reject"}},
                                   {(char[]){"69"}, (char[]){"unavailable"}},
                                   {(char[]){"other"}, (char[]){"retry"}}};
    settings.exit_codes = (struct setting_map){pairs, 4};
    use("exit $PGCOURIER_KEY");
    struct contract *c = contract_open(&exec_setup);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        contract_add(c, wanted[i].key, span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    for (size_t i = 0; i < c->count; i++) {
        ck_assert_int_eq(c->ds[i]->verdict, wanted[i].verdict);
        ck_assert_int_eq(c->ds[i]->cause ? c->ds[i]->cause->kind : ERROR_NONE, wanted[i].kind);
    }
    contract_end(c);
}
END_TEST

START_TEST(standard_error_is_not_told_when_it_is_not_wanted)
{
    settings.log_stderr = false;
    use("echo the payload >&2; exit 2");
    one_fails(VERDICT_REJECTED, ERROR_REFUSED, ": exit code 2");
}
END_TEST

START_TEST(of_endless_standard_error_the_end_is_kept)
{
    use("head -c 3000000 /dev/zero >&2; echo >&2; yes | head -c 300000 >&2; printf 'x%0400d' 7 >&2; exit 2");
    struct contract *c = contract_open(&exec_setup);
    struct delivery *d = contract_add(c, "key", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_ptr_nonnull(strstr(d->cause->text, ": exit code 2: x0000"));
    contract_end(c);
}
END_TEST

START_TEST(program_that_goes_away_is_unreachable_until_it_is_back)
{
    use("");
    char path[200], gone[210];
    snprintf(path, sizeof path, "%s/send", directory);
    snprintf(gone, sizeof gone, "%s/gone", directory);
    write_script(path, "#!/bin/sh\nexit 0\n");
    char *texts[] = {path, NULL};
    settings.command = (struct setting_list){texts, 1};
    struct contract *c = contract_open(&exec_setup);
    ck_assert_int_eq(rename(path, gone), 0);
    struct delivery *d = contract_add(c, "1", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_RETRY);
    ck_assert_int_eq(d->cause->kind, ERROR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(d->cause->text, "/send: No such file or directory; is it there,"));
    ck_assert_int_eq(contract_probe(c, "", PATIENCE_MS), REACH_NO);
    ck_assert_int_eq(rename(gone, path), 0);
    ck_assert_int_eq(contract_probe(c, "", PATIENCE_MS), REACH_YES);
    contract_add(c, "2", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[1]->verdict, VERDICT_ACKED);
    contract_end(c);
}
END_TEST

START_TEST(program_that_cannot_be_run_says_why)
{
    use("");
    char path[200];
    snprintf(path, sizeof path, "%s/send", directory);
    char *texts[] = {path, NULL};
    settings.command = (struct setting_list){texts, 1};
    write_script(path, "exit 0\n");
    one_fails(VERDICT_RETRY, ERROR_UNREACHABLE, ": Exec format error; begin a script with #!/bin/sh or the like");
    write_script(path, "#!/no/interpreter\n");
    one_fails(VERDICT_RETRY, ERROR_UNREACHABLE,
              ": No such file or directory; is it there, and the interpreter that its first line names?");
}
END_TEST

START_TEST(key_too_long_for_a_variable_is_refused)
{
    use("exit 0");
    char *key = malloc(200001);
    memset(key, 'k', 200000);
    key[200000] = '\0';
    struct contract *c = contract_open(&exec_setup);
    struct delivery *d = contract_add(c, key, span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_REJECTED);
    ck_assert_ptr_nonnull(strstr(d->cause->text, "Argument list too long; its key, type or destination is too long"));
    contract_end(c);
    free(key);
}
END_TEST

/* No descriptors and no processes are the machine's want, and nobody's attempt. */
static void limited(__rlimit_resource_t resource, rlim_t most)
{
    struct rlimit before, limit;
    struct contract *c = contract_open(&exec_setup);
    contract_add(c, "1", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS)); /* the guard stands */
    ck_assert_int_eq(getrlimit(resource, &before), 0);
    limit = (struct rlimit){.rlim_cur = most, .rlim_max = before.rlim_max};
    contract_add(c, "2", span_of("{}"));
    contract_submit(c);
    ck_assert_int_eq(setrlimit(resource, &limit), 0);
    sink_progress(c->sink, c->ps, clock_now());
    ck_assert_int_eq(setrlimit(resource, &before), 0);
    ck_assert_int_eq(c->ds[1]->verdict, VERDICT_RETRY);
    ck_assert_int_eq(c->ds[1]->cause->kind, ERROR_UNREACHABLE);
    contract_end(c);
}

START_TEST(want_of_descriptors_counts_no_attempt)
{
    use("exit 0");
    for (rlim_t most = 3; most < 12; most++)
        if (fcntl((int)most, F_GETFD) < 0) { /* the lowest that is free, and one or two above */
            limited(RLIMIT_NOFILE, most);
            limited(RLIMIT_NOFILE, most + 1);
            limited(RLIMIT_NOFILE, most + 2);
            return;
        }
}
END_TEST

/* ---- settings ---- */

static const struct {
    const char *program, *directory, *name, *value, *code, *meaning, *wanted;
} broken[] = {
    {"/nonexistent/send", NULL, "A", "", "1", "ack",
     "command: cannot run /nonexistent/send: No such file or directory; install it, or mend the path or its "
     "permissions"},
    {"/proc/version", NULL, "A", "", "1", "ack",
     "command: cannot run /proc/version: Permission denied; install it, or mend the path or its permissions"},
    {"/usr", NULL, "A", "", "1", "ack",
     "command: cannot run /usr: Is a directory; install it, or mend the path or its permissions"},
    {"/dev/null", NULL, "A", "", "1", "ack",
     "command: cannot run /dev/null: Permission denied; install it, or mend the path or its permissions"},
    {"./send", NULL, "A", "", "1", "ack",
     "command: \"./send\" is neither an absolute path nor a name without a slash; write /PATH/TO/IT"},
    {"", NULL, "A", "", "1", "ack",
     "command: \"\" is neither an absolute path nor a name without a slash; write /PATH/TO/IT"},
    {"sh", NULL, "PATH", "/usr/share:relative:/etc", "1", "ack",
     "command: no program sh in /usr/share:relative:/etc; write its absolute path, or set environment: { PATH: ... }"},
    {"sh", "tmp", "A", "", "1", "ack", "directory: \"tmp\" is no absolute path; write one"},
    {"sh", "/nonexistent", "A", "", "1", "ack",
     "directory: cannot enter /nonexistent: No such file or directory; create it or let this user in"},
    {"sh", "/dev/null", "A", "", "1", "ack",
     "directory: cannot enter /dev/null: Not a directory; create it or let this user in"},
    {"sh", NULL, "A=B", "", "1", "ack", "environment: \"A=B\" is no name of a variable; use letters, digits and _"},
    {"sh", NULL, "1A", "", "1", "ack", "environment: \"1A\" is no name of a variable; use letters, digits and _"},
    {"sh", NULL, "", "", "1", "ack", "environment: \"\" is no name of a variable; use letters, digits and _"},
    {"sh", NULL, "PGCOURIER_ID", "", "1", "ack",
     "environment: PGCOURIER_ID: names with PGCOURIER_ are set by pgcourier; choose another"},
    {"sh", NULL, "A", "", "0", "ack", "exit_codes: 0 always means that the event is delivered; take it out"},
    {"sh", NULL, "A", "", "256", "ack", "exit_codes: \"256\" is no exit code; write 1 to 255, or other"},
    {"sh", NULL, "A", "", "-1", "ack", "exit_codes: \"-1\" is no exit code; write 1 to 255, or other"},
    {"sh", NULL, "A", "", "3x", "ack", "exit_codes: \"3x\" is no exit code; write 1 to 255, or other"},
    {"sh", NULL, "A", "", "3", "acked", "exit_codes: 3: \"acked\" is unknown; write ack, retry, reject or unavailable"},
};

START_TEST(settings_that_cannot_work_are_refused_in_one_line)
{
    struct error err = {0};
    char *copies[] = {strdup(broken[_i].name),    strdup(broken[_i].value),   strdup(broken[_i].code),
                      strdup(broken[_i].meaning), strdup(broken[_i].program), NULL};
    struct setting_pair variable = {copies[0], copies[1]}, code = {copies[2], copies[3]};
    settings.command = (struct setting_list){copies + 4, 1};
    settings.environment = (struct setting_map){&variable, 1};
    settings.exit_codes = (struct setting_map){&code, 1};
    settings.directory = (char *)(uintptr_t)broken[_i].directory;
    ck_assert_ptr_null(sink_open(&sink_exec, "exec", &settings, &err));
    ck_assert_str_eq(err.text, broken[_i].wanted);
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    for (size_t i = 0; copies[i]; i++)
        free(copies[i]);
}
END_TEST

/* With a stack of 512 kB the kernel passes on 128 kB. */
START_TEST(more_environment_than_leaves_room_for_an_event_is_refused)
{
    use("exit 0");
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_STACK, &limit), 0);
    limit.rlim_cur = (rlim_t)512 * 1024;
    ck_assert_int_eq(setrlimit(RLIMIT_STACK, &limit), 0);
    char *text = calloc(1, 40001), names[] = "A\0B";
    memset(text, 'x', 40000);
    struct setting_pair variables[] = {{names, text}, {names + 2, text}};
    settings.environment = (struct setting_map){variables, 1};
    deliver_one("k");
    struct error err = {0};
    settings.environment.count = 2;
    ck_assert_ptr_null(sink_open(&sink_exec, "exec", &settings, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "with this stack (ulimit -s) 65536 are the most; put some into a file"));
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("exec");
    suite_add_tcase(suite, contract_tcase(&exec_setup));
    suite_add_tcase(suite, contract_tcase(&exec_batch_setup));
    TCase *tcase = exec_tcase("only exec");
    tcase_add_test(tcase, standard_input_is_one_line_of_json);
    tcase_add_test(tcase, environment_is_what_is_configured_and_the_event);
    tcase_add_test(tcase, what_an_event_does_not_have_is_not_set);
    tcase_add_test(tcase, descriptors_are_the_three_standard_ones);
    tcase_add_test(tcase, signals_are_as_in_a_new_session);
    tcase_add_test(tcase, working_directory_is_the_configured_one);
    tcase_add_test(tcase, arguments_are_passed_as_they_stand);
    tcase_add_test(tcase, large_payload_that_nobody_reads_holds_up_nothing);
    tcase_add_test(tcase, large_payload_is_read_whole);
    tcase_add_loop_test(tcase, end_of_a_command_is_a_verdict, 0, (int)(sizeof ends / sizeof ends[0]));
    tcase_add_test(tcase, exit_codes_mean_what_is_configured);
    tcase_add_test(tcase, standard_error_is_not_told_when_it_is_not_wanted);
    tcase_add_test(tcase, of_endless_standard_error_the_end_is_kept);
    tcase_add_test(tcase, program_that_goes_away_is_unreachable_until_it_is_back);
    tcase_add_test(tcase, program_that_cannot_be_run_says_why);
    tcase_add_test(tcase, key_too_long_for_a_variable_is_refused);
    tcase_add_test(tcase, want_of_descriptors_counts_no_attempt);
    tcase_add_test(tcase, more_environment_than_leaves_room_for_an_event_is_refused);
    tcase_add_loop_test(tcase, settings_that_cannot_work_are_refused_in_one_line, 0,
                        (int)(sizeof broken / sizeof broken[0]));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
