#include "sinks/exec/exec_command.h"

#include "relay/base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_PREFIX "PGCOURIER_"
#define OWN_MAX 8
#define STACK_BYTES ((size_t)64 * 1024)
#define TEXT_BYTES_MAX ((size_t)64 * 1024) /* Linux takes 128 kB in one variable or argument */

struct exec_command {
    struct exec_program program;
    char path[PATH_MAX];
    char **fixed; /* NAME=VALUE */
    size_t fixed_count;
    void *stack;
};

/* There unless the configuration says otherwise. */
static const struct usual {
    const char *name, *value;
} usual[] = {
    {"PATH", "/usr/local/bin:/usr/bin:/bin"},
    {"LANG", "C.UTF-8"},
};

static const struct setting_pair *configured(const struct setting_map *environment, const char *name)
{
    for (size_t i = 0; i < environment->count; i++)
        if (strcmp(environment->pairs[i].name, name) == 0)
            return &environment->pairs[i];
    return NULL;
}

/* ---- the environment ---- */

static bool check_name(const char *name, struct error *err)
{
    static const char letters[] = "_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (!*name || name[strspn(name, letters)] || (*name >= '0' && *name <= '9'))
        return error_set(err, ERROR_CONFIG,
                         "environment: \"%.60s\" is no name of a variable; use letters, digits and _", name);
    if (strncmp(name, OWN_PREFIX, sizeof OWN_PREFIX - 1) == 0)
        return error_set(err, ERROR_CONFIG,
                         "environment: %.60s: names with " OWN_PREFIX " are set by pgcourier; choose "
                         "another",
                         name);
    return true;
}

static void add_fixed(struct exec_command *command, const char *name, const char *value)
{
    size_t size = strlen(name) + strlen(value) + 2;
    char *variable = memory_new(size);
    snprintf(variable, size, "%s=%s", name, value);
    command->fixed[command->fixed_count++] = variable;
}

static bool fill_fixed(struct exec_command *command, const struct setting_map *environment, struct error *err)
{
    command->fixed = memory_array(environment->count + sizeof usual / sizeof usual[0], sizeof *command->fixed);
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (!configured(environment, usual[i].name))
            add_fixed(command, usual[i].name, usual[i].value);
    for (size_t i = 0; i < environment->count; i++) {
        const struct setting_pair *pair = &environment->pairs[i];
        if (!check_name(pair->name, err))
            return false;
        if (strlen(pair->value) > TEXT_BYTES_MAX)
            return error_set(err, ERROR_CONFIG, "environment: %.60s: longer than %zu bytes; put it into a file",
                             pair->name, TEXT_BYTES_MAX);
        add_fixed(command, pair->name, pair->value);
    }
    return true;
}

/* ---- the program ---- */

static bool may_run(const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0)
        return false;
    if (!S_ISREG(found.st_mode)) {
        errno = S_ISDIR(found.st_mode) ? EISDIR : EACCES;
        return false;
    }
    return access(path, X_OK) == 0;
}

/* As a shell looks for it, but for empty entries, which would mean the working directory. */
static bool search(const char *path, const char *name, char ret[PATH_MAX])
{
    for (const char *entry = path; *entry; entry += strspn(entry, ":")) {
        size_t size = strcspn(entry, ":");
        int length = snprintf(ret, PATH_MAX, "%.*s/%s", (int)size, entry, name);
        if (*entry == '/' && length < PATH_MAX && may_run(ret))
            return true;
        entry += size;
    }
    return false;
}

static bool find_program(struct exec_command *command, const struct exec_settings *settings, struct error *err)
{
    const char *name = settings->command.texts[0], *path = usual[0].value;
    const struct setting_pair *own = configured(&settings->environment, "PATH");
    path = own ? own->value : path;
    if (*name == '/') {
        if (snprintf(command->path, sizeof command->path, "%s", name) < PATH_MAX && may_run(command->path))
            return true;
        return error_set(err, ERROR_CONFIG,
                         "command: cannot run %.200s: %s; install it, or mend the path or its "
                         "permissions",
                         name, strerror(errno));
    }
    if (!*name || strchr(name, '/'))
        return error_set(
            err, ERROR_CONFIG,
            "command: \"%.200s\" is neither an absolute path nor a name without a slash; write /PATH/TO/IT", name);
    return search(path, name, command->path) ||
           error_set(err, ERROR_CONFIG,
                     "command: no program %.100s in %.200s; write its absolute path, or set environment: { PATH: ... }",
                     name, path);
}

static bool check_arguments(const struct setting_list *list, struct error *err)
{
    for (size_t i = 0; i < list->count; i++)
        if (strlen(list->texts[i]) > TEXT_BYTES_MAX)
            return error_set(err, ERROR_CONFIG, "command: argument %zu is longer than %zu bytes; put it into a file", i,
                             TEXT_BYTES_MAX);
    return true;
}

/* Half of what the kernel passes on is an event's own: one that does not fit in there is refused, and no other. */
static bool check_room(const struct exec_command *command, const struct setting_list *arguments, struct error *err)
{
    size_t size = 0, most = (size_t)sysconf(_SC_ARG_MAX) / 2;
    for (size_t i = 0; i < arguments->count; i++)
        size += strlen(arguments->texts[i]) + 1 + sizeof(char *);
    for (size_t i = 0; i < command->fixed_count; i++)
        size += strlen(command->fixed[i]) + 1 + sizeof(char *);
    return size <= most ||
           error_set(err, ERROR_CONFIG,
                     "command: arguments and environment have %zu bytes, and with this stack (ulimit -s) %zu are the "
                     "most; put some into a file",
                     size, most);
}

static bool check_directory(const char *directory, struct error *err)
{
    struct stat found;
    if (!directory)
        return true;
    if (*directory != '/')
        return error_set(err, ERROR_CONFIG, "directory: \"%.200s\" is no absolute path; write one", directory);
    errno = ENOTDIR;
    if (stat(directory, &found) == 0 && S_ISDIR(found.st_mode) && access(directory, X_OK) == 0)
        return true;
    return error_set(err, ERROR_CONFIG, "directory: cannot enter %.200s: %s; create it or let this user in", directory,
                     strerror(errno));
}

/* pidfd_open() came with Linux 5.3 and close_range() with 5.9. */
static bool check_kernel(struct error *err)
{
    return close_range(~0U, ~0U, 0) == 0 ||
           error_set(err, ERROR_CONFIG, "exec sinks need Linux 5.9 or later (close_range: %s)", strerror(errno));
}

static bool take_resources(struct exec_command *command, struct error *err)
{
    command->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (command->stack == MAP_FAILED)
        return error_set(err, ERROR_RESOURCE, "no memory for a stack: %s", strerror(errno));
    command->program.stack_end = (char *)command->stack + STACK_BYTES;
    command->program.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    return command->program.null_fd >= 0 || error_set(err, ERROR_RESOURCE, "/dev/null: %s", strerror(errno));
}

struct exec_command *exec_command_open(const struct exec_settings *settings, struct error *err)
{
    struct exec_command *command = memory_new(sizeof *command);
    command->stack = MAP_FAILED;
    command->program = (struct exec_program){
        .path = command->path, .argv = settings->command.texts, .directory = settings->directory, .null_fd = -1};
    if (check_kernel(err) && fill_fixed(command, &settings->environment, err) && find_program(command, settings, err) &&
        check_arguments(&settings->command, err) && check_room(command, &settings->command, err) &&
        check_directory(settings->directory, err) && take_resources(command, err))
        return command;
    exec_command_close(command);
    return NULL;
}

void exec_command_close(struct exec_command *command)
{
    if (!command)
        return;
    for (size_t i = 0; i < command->fixed_count; i++)
        memory_wipe(command->fixed[i]); /* may be a secret */
    free(command->fixed);
    if (command->program.null_fd >= 0)
        close(command->program.null_fd);
    if (command->stack != MAP_FAILED)
        munmap(command->stack, STACK_BYTES);
    free(command);
}

const struct exec_program *exec_command_program(const struct exec_command *command)
{
    return &command->program;
}

/* ---- of one command ---- */

struct build {
    struct arena *arena;
    char **variables;
    size_t count;
};

/* What is absent is not set; nor is what a variable cannot hold, which a text of PostgreSQL's never is. */
static void add(struct build *build, const char *name, struct span value)
{
    if (!value.data || memchr(value.data, '\0', value.size))
        return;
    size_t name_size = strlen(name);
    char *variable = arena_alloc(build->arena, name_size + value.size + 2);
    char *out = mempcpy(variable, name, name_size);
    *out++ = '=';
    memcpy(out, value.data, value.size);
    build->variables[build->count++] = variable;
}

static void add_number(struct build *build, const char *name, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    add(build, name, span_of(text));
}

char *const *exec_command_environment(const struct exec_command *command, const struct delivery *d, size_t count)
{
    const struct event *event = d->event;
    struct build build = {.arena = d->arena,
                          .variables = arena_array(d->arena, command->fixed_count + OWN_MAX + 1, sizeof(char *))};
    for (size_t i = 0; i < command->fixed_count; i++)
        build.variables[build.count++] = command->fixed[i];
    add_number(&build, OWN_PREFIX "EVENTS", (int64_t)count);
    if (count > 1)
        return build.variables;
    add_number(&build, OWN_PREFIX "ID", event->id);
    add(&build, OWN_PREFIX "KEY", event->key);
    add(&build, OWN_PREFIX "TYPE", event->type);
    if (d->destination.size > 0) /* empty: none is configured */
        add(&build, OWN_PREFIX "DESTINATION", d->destination);
    add_number(&build, OWN_PREFIX "ATTEMPT", event->attempt);
    add(&build, OWN_PREFIX "EVENT_ID", event->event_id);
    add(&build, OWN_PREFIX "TRACEPARENT", event->traceparent);
    return build.variables;
}
