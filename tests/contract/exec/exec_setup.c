#include "tests/contract/exec/exec_setup.h"

#include "tests/support/temporary_file.h"

#include <ftw.h>

struct exec_settings settings;
char directory[128];

static char script_text[2048];
static char *script_command[] = {(char[]){"sh"}, (char[]){"-c"}, script_text, NULL};
static struct setting_pair folder[] = {{(char[]){"DIR"}, directory}};

static void begin(void)
{
    temporary_folder(directory, sizeof directory);
    settings = (struct exec_settings){.processes = 8,
                                      .batch = 1,
                                      .timeout_us = PATIENCE_MS * MS_US,
                                      .kill_after_us = PATIENCE_MS * MS_US,
                                      .environment = {folder, 1},
                                      .directory = directory,
                                      .log_stderr = true};
}

static int remove_one(const char *path, const struct stat *found, int flag, struct FTW *walk)
{
    (void)found, (void)flag, (void)walk;
    return remove(path);
}

static void end(void)
{
    nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void start(struct contract_setup *setup)
{
    begin();
    use("[ \"$PGCOURIER_DESTINATION\" != deaf ] || exec sleep 60");
    setup->settings = &settings;
}

/* A batch knows no destination: the command looks for it. */
static void start_batch(struct contract_setup *setup)
{
    start(setup);
    settings.batch = 100;
    use("if grep -q '\"destination\":\"deaf\"'; then exec sleep 60; fi");
}

static void stop(struct contract_setup *setup)
{
    (void)setup;
    end();
}

struct contract_setup exec_setup = {.name = "exec",
                                    .type = &sink_exec,
                                    .settings = &settings,
                                    .destination = "anywhere",
                                    .deaf_destination = "deaf",
                                    .many = 100,
                                    .start = start,
                                    .stop = stop};
struct contract_setup exec_batch_setup = {.name = "exec, in batches",
                                          .type = &sink_exec,
                                          .settings = &settings,
                                          .destination = "anywhere",
                                          .deaf_destination = "deaf",
                                          .start = start_batch,
                                          .stop = stop};

TCase *exec_tcase(const char *name)
{
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, begin, end);
    tcase_set_timeout(tcase, 60);
    return tcase;
}

void use(const char *script)
{
    ck_assert_uint_lt(strlen(script), sizeof script_text);
    memcpy(script_text, script, strlen(script) + 1);
    settings.command = (struct setting_list){script_command, 3};
}

void write_script(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

char *file_text(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    char *text = calloc(1, 65536);
    FILE *file = fopen(path, "re");
    if (file) {
        text[fread(text, 1, 65535, file)] = '\0';
        fclose(file);
    }
    return text;
}

void file_is(const char *name, const char *wanted)
{
    char *text = file_text(name);
    ck_assert_str_eq(text, wanted);
    free(text);
}

bool file_comes(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    for (instant_us until = clock_now() + PATIENCE_MS * MS_US; clock_now() < until; usleep(1000))
        if (access(path, F_OK) == 0)
            return true;
    return false;
}

void all_arrive(struct contract *c)
{
    ck_assert(contract_run(c, PATIENCE_MS));
    for (size_t i = 0; i < c->count; i++)
        ck_assert_msg(c->ds[i]->verdict == VERDICT_ACKED, "event %zu: %s", i + 1,
                      c->ds[i]->cause ? c->ds[i]->cause->text : "no verdict");
    contract_end(c);
}

void deliver_one(const char *key)
{
    struct contract *c = contract_open(&exec_setup);
    contract_add(c, key, span_of("{}"));
    all_arrive(c);
}

void one_fails(enum verdict verdict, enum error_kind kind, const char *text)
{
    struct contract *c = contract_open(&exec_setup);
    struct delivery *d = contract_add(c, "key", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_msg(d->verdict == verdict, "%s: %s", verdict_name(d->verdict), d->cause ? d->cause->text : "no cause");
    ck_assert_int_eq(d->cause->kind, kind);
    const char *tail = d->cause->text + strlen(d->cause->text) - strlen(text);
    ck_assert_msg(tail > d->cause->text && strcmp(tail, text) == 0, "%s", d->cause->text);
    contract_end(c);
}
