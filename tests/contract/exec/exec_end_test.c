/* The exec sink: which events go together and how one of them fails, and how commands are stopped, whoever ends first.
 */
#include "tests/contract/exec/exec_setup.h"

#include <sys/wait.h>

static bool is_gone(pid_t pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return true;
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';
    const char *state = strrchr(text, ')'); /* whoever inherits it may not have waited for it yet */
    return !state || state[2] == 'Z' || state[2] == 'X';
}

static void goes_away(pid_t pid)
{
    ck_assert_int_gt(pid, 0);
    for (instant_us until = clock_now() + PATIENCE_MS * MS_US; !is_gone(pid); usleep(1000))
        ck_assert_msg(clock_now() < until, "process %d lives on", (int)pid);
}

/* ---- together ---- */

static size_t lines_of(const char *name)
{
    char *text = file_text(name);
    size_t lines = 0;
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    free(text);
    return lines;
}

/* How often a command had more than one event is in `together`, the ids of those that went alone in `alone`. */
#define NOTE                                                                                                           \
    "if [ $PGCOURIER_EVENTS -gt 1 ]; then echo $PGCOURIER_EVENTS >> together; else echo $PGCOURIER_ID >> alone; fi; "

START_TEST(batch_is_filled_in_order)
{
    settings.batch = 10;
    settings.processes = 1;
    use("cat >> out; env | grep ^PGCOURIER_ >> environment");
    struct contract *c = contract_open(&exec_setup);
    for (int i = 0; i < 25; i++)
        contract_add(c, NULL, span_of("1"));
    all_arrive(c);
    file_is("environment", "PGCOURIER_EVENTS=10\nPGCOURIER_EVENTS=10\nPGCOURIER_EVENTS=5\n");
    char *text = file_text("out"), *line = text;
    for (int id = 1; id <= 25; id++, line = strchr(line, '\n') + 1)
        ck_assert_int_eq(atoi(line + strlen("{\"id\":")), id);
    ck_assert_str_eq(line, "");
    free(text);
}
END_TEST

START_TEST(batch_has_a_bound_in_bytes)
{
    settings.batch = 10;
    use("echo $PGCOURIER_EVENTS >> out");
    struct contract *c = contract_open(&exec_setup);
    size_t size = 600u << 10;
    char *payload = calloc(1, size);
    for (int i = 0; i < 3; i++)
        contract_add(c, NULL, (struct span){payload, size});
    all_arrive(c);
    free(payload);
    file_is("out", "1\n1\n1\n");
}
END_TEST

START_TEST(bad_event_of_a_batch_fails_alone)
{
    settings.batch = 10;
    use(NOTE "! grep -q poison");
    struct contract *c = contract_open(&exec_setup);
    for (int i = 0; i < 10; i++)
        contract_add(c, NULL, span_of("1"));
    struct event *bad = contract_event(c->ds[6]);
    bad->payload = span_of("poison");
    bad->payload_kind = PAYLOAD_TEXT;
    ck_assert(contract_run(c, PATIENCE_MS));
    for (size_t i = 0; i < c->count; i++)
        ck_assert_int_eq(c->ds[i]->verdict, i == 6 ? VERDICT_REJECTED : VERDICT_ACKED);
    contract_end(c);
    file_is("together", "10\n");
    ck_assert_uint_eq(lines_of("alone"), 10);
}
END_TEST

START_TEST(bad_event_of_a_run_stops_the_run)
{
    settings.batch = 10;
    use(NOTE "! grep -q poison");
    struct contract *c = contract_open(&exec_setup);
    contract_add_run(c, "key", 5);
    contract_add(c, "other", span_of("1"));
    struct event *bad = contract_event(c->ds[2]);
    bad->payload = span_of("poison");
    bad->payload_kind = PAYLOAD_TEXT;
    ck_assert(contract_run(c, PATIENCE_MS));
    static const enum verdict wanted[] = {VERDICT_ACKED, VERDICT_ACKED, VERDICT_REJECTED,
                                          VERDICT_RETRY, VERDICT_RETRY, VERDICT_ACKED};
    for (size_t i = 0; i < c->count; i++)
        ck_assert_msg(c->ds[i]->verdict == wanted[i], "event %zu: %s", i + 1, verdict_name(c->ds[i]->verdict));
    ck_assert_ptr_nonnull(strstr(c->ds[3]->cause->text, ": not run, as the event before it failed"));
    contract_end(c);
    char *text = file_text("alone");
    ck_assert_ptr_null(strstr(text, "4\n"));
    ck_assert_ptr_null(strstr(text, "5\n"));
    free(text);
}
END_TEST

START_TEST(run_longer_than_a_batch_goes_in_parts_one_after_the_other)
{
    settings.batch = 4;
    use("sed -n 's/^{\"id\":\\([0-9]*\\),\"key\":\"a\".*/\\1/p' >> out");
    struct contract *c = contract_open(&exec_setup);
    contract_add_run(c, "a", 10);
    contract_add_run(c, "b", 10);
    contract_add_run(c, "c", 3);
    all_arrive(c);
    file_is("out", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
}
END_TEST

START_TEST(rest_of_a_run_has_nothing_to_do_with_another_run)
{
    settings.batch = 2;
    settings.processes = 4;
    use("if grep -q poison; then exit 1; fi; echo $$ >> pids");
    struct contract *c = contract_open(&exec_setup);
    contract_add_run(c, "a", 4);
    contract_add_run(c, "b", 4);
    contract_event(c->ds[6])->payload = span_of("poison");
    contract_event(c->ds[6])->payload_kind = PAYLOAD_TEXT;
    ck_assert_uint_eq(contract_submit(c), 8);
    sink_progress(c->sink, c->ps, clock_now());
    for (instant_us until = clock_now() + PATIENCE_MS * MS_US; lines_of("pids") < 2; usleep(1000))
        ck_assert_msg(clock_now() < until, "two commands did not begin");
    char *text = file_text("pids"), *second = strchr(text, '\n') + 1;
    goes_away((pid_t)atoi(text));
    goes_away((pid_t)atoi(second));
    free(text);
    ck_assert(contract_drain(c, PATIENCE_MS)); /* the ends of both are seen in one turn */
    for (size_t i = 0; i < c->count; i++)
        ck_assert_msg(c->ds[i]->verdict == (i < 6    ? VERDICT_ACKED
                                            : i == 6 ? VERDICT_REJECTED
                                                     : VERDICT_RETRY),
                      "event %zu: %s", i + 1, verdict_name(c->ds[i]->verdict));
    contract_end(c);
}
END_TEST

/* ---- stopped ---- */

static pid_t pid_in(const char *name)
{
    char *text = file_text(name);
    pid_t pid = (pid_t)atoi(text);
    free(text);
    return pid;
}

/* A sink whose one command is running and has made the file `ready`. */
static struct contract *one_running(const char *script)
{
    use(script);
    struct contract *c = contract_open(&exec_setup);
    contract_add(c, "key", span_of("{}"));
    ck_assert_uint_eq(contract_submit(c), 1);
    contract_turn(c, 0);
    ck_assert(file_comes("ready"));
    return c;
}

static void time_passes(struct contract *c, int64_t us)
{
    pollset_clear(c->ps);
    sink_progress(c->sink, c->ps, clock_now() + us);
}

START_TEST(time_limit_ends_the_whole_group)
{
    struct contract *c = one_running("sleep 60 & echo $! > child; echo busy >&2; touch ready; wait");
    time_passes(c, settings.timeout_us);
    ck_assert(contract_drain(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_UNKNOWN);
    ck_assert_int_eq(c->ds[0]->cause->kind, ERROR_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(c->ds[0]->cause->text, ": not done within 30000 ms: busy"));
    goes_away(pid_in("child"));
    contract_end(c);
}
END_TEST

START_TEST(command_may_clean_up_and_is_not_believed_any_more)
{
    struct contract *c = one_running("trap 'echo bye > out; exit 0' TERM; touch ready; while :; do sleep 0.01; done");
    time_passes(c, settings.timeout_us);
    ck_assert(contract_drain(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_UNKNOWN);
    file_is("out", "bye\n");
    contract_end(c);
}
END_TEST

START_TEST(command_that_does_not_listen_is_killed)
{
    struct contract *c = one_running("trap '' TERM; echo $$ > self; touch ready; while :; do sleep 0.01; done");
    time_passes(c, settings.timeout_us);
    time_passes(c, settings.timeout_us);
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_NONE);
    ck_assert(!is_gone(pid_in("self")));
    time_passes(c, settings.timeout_us + settings.kill_after_us);
    ck_assert(contract_drain(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_UNKNOWN);
    contract_end(c);
}
END_TEST

START_TEST(what_a_command_leaves_running_holds_no_verdict_and_is_killed)
{
    struct contract *c = one_running("sleep 60 & echo $! > child; touch ready; exit 0");
    ck_assert(contract_drain(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_ACKED);
    goes_away(pid_in("child"));
    contract_end(c);
}
END_TEST

START_TEST(close_gives_a_command_a_moment_and_kills_it)
{
    struct contract *c = one_running("trap 'echo bye > out' TERM; sleep 60 & echo $! > child; touch ready; "
                                     "while :; do wait; done");
    pid_t child = pid_in("child");
    ck_assert_int_le(contract_close_us(c), 2 * SECOND_US);
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_UNKNOWN);
    file_is("out", "bye\n");
    goes_away(child);
    contract_end(c);
}
END_TEST

START_TEST(cancelled_delivery_is_killed_at_once)
{
    struct contract *c = one_running("trap '' TERM; sleep 60 & echo $! > child; touch ready; while :; do wait; done");
    sink_cancel(c->ds[0]);
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_NONE);
    ck_assert(contract_drain(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_UNKNOWN);
    ck_assert_int_eq(c->ds[0]->cause->kind, ERROR_LOST_CLAIM); /* nobody's fault */
    goes_away(pid_in("child"));
    sink_cancel(c->ds[0]); /* has its verdict */
    contract_end(c);
}
END_TEST

START_TEST(cancelled_delivery_lets_the_others_of_its_batch_go_on)
{
    settings.batch = 4;
    settings.processes = 1;
    use("if [ $PGCOURIER_EVENTS -gt 1 ]; then touch ready; exec sleep 60; fi; echo $PGCOURIER_ID >> alone");
    struct contract *c = contract_open(&exec_setup);
    for (int i = 0; i < 3; i++)
        contract_add(c, NULL, span_of("{}"));
    contract_add_run(c, "key", 3); /* one in the batch, two behind it */
    ck_assert_uint_eq(contract_submit(c), 6);
    contract_turn(c, 0);
    ck_assert(file_comes("ready"));
    sink_cancel(c->ds[1]);
    sink_cancel(c->ds[3]);
    sink_cancel(c->ds[4]);
    sink_cancel(c->ds[5]);
    ck_assert(contract_drain(c, PATIENCE_MS));
    static const enum verdict wanted[] = {VERDICT_ACKED,   VERDICT_UNKNOWN, VERDICT_ACKED,
                                          VERDICT_UNKNOWN, VERDICT_RETRY,   VERDICT_RETRY};
    for (size_t i = 0; i < c->count; i++)
        ck_assert_msg(c->ds[i]->verdict == wanted[i], "event %zu: %s", i + 1, verdict_name(c->ds[i]->verdict));
    file_is("alone", "1\n3\n");
    contract_end(c);
}
END_TEST

START_TEST(cancelled_delivery_that_waits_is_not_run)
{
    use("echo $PGCOURIER_ID >> alone");
    struct contract *c = contract_open(&exec_setup);
    contract_add(c, "1", span_of("{}"));
    contract_add(c, "2", span_of("{}"));
    ck_assert_uint_eq(contract_submit(c), 2);
    sink_cancel(c->ds[0]);
    ck_assert(contract_drain(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_RETRY);
    ck_assert_int_eq(c->ds[1]->verdict, VERDICT_ACKED);
    file_is("alone", "2\n");
    contract_end(c);
}
END_TEST

/* ---- when the relay is killed ---- */

/* The child of `parent` that is called exec-guard; 0: there is none. */
static pid_t guard_of(pid_t parent)
{
    char path[64], name[32];
    int pid, found = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *children = fopen(path, "re");
    while (children && !found && fscanf(children, "%d", &pid) == 1) {
        snprintf(path, sizeof path, "/proc/%d/comm", pid);
        FILE *comm = fopen(path, "re");
        found = comm && fgets(name, sizeof name, comm) && strcmp(name, "exec-guard\n") == 0;
        if (comm)
            fclose(comm);
    }
    if (children)
        fclose(children);
    return found ? pid : 0;
}

static pid_t wait_for_guard(pid_t parent)
{
    pid_t guard;
    for (instant_us until = clock_now() + PATIENCE_MS * MS_US; !(guard = guard_of(parent)); usleep(1000))
        ck_assert_msg(clock_now() < until, "no guard");
    return guard;
}

/* A process that is a relay as far as this sink is concerned, with one command running. */
static pid_t start_relay(const char *script)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        one_running(script);
        for (;;)
            pause();
    }
    ck_assert(file_comes("ready"));
    return pid;
}

static void kill_and_wait(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(nothing_of_a_command_outlives_a_relay_that_is_killed)
{
    pid_t relay = start_relay("trap '' TERM; sleep 60 & echo $! > child; echo $$ > self; touch ready; wait");
    pid_t guard = wait_for_guard(relay);
    kill_and_wait(relay);
    goes_away(pid_in("child"));
    goes_away(pid_in("self"));
    goes_away(guard);
}
END_TEST

START_TEST(command_dies_with_the_relay_even_without_a_guard)
{
    pid_t relay = start_relay("echo $$ > self; touch ready; exec sleep 60");
    ck_assert_int_eq(kill(wait_for_guard(relay), SIGKILL), 0);
    kill_and_wait(relay);
    goes_away(pid_in("self"));
}
END_TEST

START_TEST(guard_has_none_of_the_relays_descriptors_and_hears_no_signals)
{
    use("exit 0");
    struct contract *c = contract_open(&exec_setup);
    ck_assert_int_eq(guard_of(getpid()), 0); /* until the first command */
    contract_add(c, NULL, span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    pid_t guard = wait_for_guard(getpid());
    char path[64];
    for (int fd = 1; fd < 64; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)guard, fd);
        ck_assert_msg(access(path, F_OK) != 0, "%s", path);
    }
    ck_assert_int_eq(getpgid(guard), guard);
    ck_assert_int_eq(kill(guard, SIGTERM), 0);
    ck_assert_int_eq(kill(guard, SIGINT), 0);
    contract_add(c, NULL, span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(wait_for_guard(getpid()), guard);
    contract_end(c);
    ck_assert(is_gone(guard));
}
END_TEST

START_TEST(guard_that_was_killed_is_replaced)
{
    use("exit 0");
    struct contract *c = contract_open(&exec_setup);
    contract_add(c, NULL, span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    pid_t guard = wait_for_guard(getpid());
    ck_assert_int_eq(kill(guard, SIGKILL), 0);
    goes_away(guard);
    contract_add(c, NULL, span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[1]->verdict, VERDICT_ACKED);
    ck_assert_int_ne(wait_for_guard(getpid()), guard);
    contract_end(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("exec, ends");
    TCase *together = exec_tcase("together");
    tcase_add_test(together, batch_is_filled_in_order);
    tcase_add_test(together, batch_has_a_bound_in_bytes);
    tcase_add_test(together, bad_event_of_a_batch_fails_alone);
    tcase_add_test(together, bad_event_of_a_run_stops_the_run);
    tcase_add_test(together, run_longer_than_a_batch_goes_in_parts_one_after_the_other);
    tcase_add_test(together, rest_of_a_run_has_nothing_to_do_with_another_run);
    suite_add_tcase(suite, together);
    TCase *stopped = exec_tcase("stopped");
    tcase_add_test(stopped, time_limit_ends_the_whole_group);
    tcase_add_test(stopped, command_may_clean_up_and_is_not_believed_any_more);
    tcase_add_test(stopped, command_that_does_not_listen_is_killed);
    tcase_add_test(stopped, what_a_command_leaves_running_holds_no_verdict_and_is_killed);
    tcase_add_test(stopped, close_gives_a_command_a_moment_and_kills_it);
    tcase_add_test(stopped, cancelled_delivery_is_killed_at_once);
    tcase_add_test(stopped, cancelled_delivery_lets_the_others_of_its_batch_go_on);
    tcase_add_test(stopped, cancelled_delivery_that_waits_is_not_run);
    tcase_add_test(stopped, nothing_of_a_command_outlives_a_relay_that_is_killed);
    tcase_add_test(stopped, command_dies_with_the_relay_even_without_a_guard);
    tcase_add_test(stopped, guard_has_none_of_the_relays_descriptors_and_hears_no_signals);
    tcase_add_test(stopped, guard_that_was_killed_is_replaced);
    suite_add_tcase(suite, stopped);
    return run_suite(suite);
}
