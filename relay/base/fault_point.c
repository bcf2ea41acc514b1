#include "relay/base/fault_point.h"

#include "relay/base/clock_monotonic.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAULTS_MAX 16
#define DESCRIPTORS_MAX 1024
#define EXIT_REFUSED 64

struct action {
    const char *name;
    bool (*carry_out)(void); /* true: the step is to fail */
    bool lasts;              /* at each hit from that one on */
};

struct fault {
    const struct fault_place *place;
    const struct action *action;
    unsigned hit, seen;
};

extern const struct fault_place places[] __asm__("__start_fault_places");
extern const struct fault_place places_end[] __asm__("__stop_fault_places");

/* The one exception from the rule against state at file level: a point has nobody to carry it. librdkafka's threads
 * come to "memory.allocate" only, which no test plans for a relay with a Kafka sink. */
static struct fault faults[FAULTS_MAX];
static size_t fault_count;
static int log_fd = -1;
static bool known;

/* ---- actions ---- */

static bool kill_process(void)
{
    return raise(SIGKILL) != 0;
}

static bool stop_process(void)
{
    return raise(SIGSTOP) != 0;
}

static bool drop_connections(void)
{
    struct sockaddr_storage peer;
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
        socklen_t size = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0)
            shutdown(fd, SHUT_RDWR);
    }
    return false;
}

static bool fail_step(void)
{
    return true;
}

static const struct action actions[] = {{"kill", kill_process, false},
                                        {"stop", stop_process, false},
                                        {"drop", drop_connections, false},
                                        {"error", fail_step, false},
                                        {"errors", fail_step, true}};

#define ACTION_COUNT (sizeof actions / sizeof actions[0])

/* ---- the plan ---- */

static _Noreturn void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

static _Noreturn void refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    exit(EXIT_REFUSED);
}

static const struct fault_place *find_place(const char *name)
{
    for (const struct fault_place *place = places; place < places_end; place++)
        if (strcmp(place->name, name) == 0)
            return place;
    refuse("PGCOURIER_FAULT: no point is called `%s`\n", name);
}

static const struct action *find_action(const char *name, const struct fault_place *place)
{
    for (size_t i = 0; i < ACTION_COUNT; i++) {
        if (strcmp(actions[i].name, name) != 0)
            continue;
        if (actions[i].carry_out == fail_step && !place->may_fail)
            refuse("PGCOURIER_FAULT: the step at `%s` cannot be told to fail\n", place->name);
        return &actions[i];
    }
    refuse("PGCOURIER_FAULT: no action is called `%s`; write kill, stop, drop, error or errors\n", name);
}

/* Returns what follows. */
static const char *read_fault(const char *text)
{
    char point[64], hit[10], name[16];
    int used = 0;
    if (sscanf(text, "%63[^:,]:%9[0-9]:%15[^:,]%n", point, hit, name, &used) != 3 || !strchr(",", text[used]) ||
        strtoul(hit, NULL, 10) == 0)
        refuse("PGCOURIER_FAULT: cannot read `%s`; write POINT:HIT:ACTION, the first hit is 1\n", text);
    if (fault_count == FAULTS_MAX)
        refuse("PGCOURIER_FAULT: there may be %d faults, and `%s` is one more\n", FAULTS_MAX, text);
    const struct fault_place *place = find_place(point);
    faults[fault_count++] =
        (struct fault){.place = place, .action = find_action(name, place), .hit = (unsigned)strtoul(hit, NULL, 10)};
    return text + used + (text[used] == ',');
}

static void open_log(const char *path)
{
    log_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (log_fd < 0)
        refuse("PGCOURIER_FAULT_LOG: %s: %s\n", path, strerror(errno));
}

void fault_point_start(void)
{
    const char *text = getenv("PGCOURIER_FAULT"), *path = getenv("PGCOURIER_FAULT_LOG");
    known = true;
    while (text && *text)
        text = read_fault(text);
    if (fault_count > 0 && path)
        open_log(path);
}

/* ---- the points ---- */

static void write_down(const struct fault *fault)
{
    char line[256];
    struct timespec at = clock_monotonic_at(clock_now()); /* the clock of what receives the events */
    int size =
        snprintf(line, sizeof line, "{\"point\":\"%s\",\"hit\":%u,\"action\":\"%s\",\"pid\":%d,\"at\":%" PRId64 "}\n",
                 fault->place->name, fault->seen, fault->action->name, getpid(),
                 (int64_t)at.tv_sec * SECOND_US + at.tv_nsec / 1000);
    if (log_fd >= 0 && write(log_fd, line, (size_t)size) != size)
        abort();
}

static bool is_due(struct fault *fault)
{
    fault->seen++;
    return fault->seen == fault->hit || (fault->action->lasts && fault->seen > fault->hit);
}

bool fault_point(const struct fault_place *place)
{
    if (!known)
        fault_point_start();
    bool fail = false;
    for (size_t i = 0; i < fault_count; i++) {
        if (faults[i].place != place || !is_due(&faults[i]))
            continue;
        write_down(&faults[i]);
        fail = faults[i].action->carry_out() || fail;
    }
    return fail;
}
