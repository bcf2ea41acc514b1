#include "relay/base/fault_point.h"

#include "relay/base/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAULTS_MAX 16
#define DESCRIPTORS_MAX 1024

struct fault {
    char point[64], action[16];
    unsigned hit, seen;
};

/* The one exception from the rule against state at file level: a point has nobody to carry it. librdkafka's threads
 * never come here. */
static struct fault faults[FAULTS_MAX];
static size_t fault_count;
static bool known;

static void read_faults(void)
{
    const char *text = getenv("PGCOURIER_FAULT");
    known = true;
    for (int used; text && *text; text += used + (text[used] == ',')) {
        struct fault *fault = &faults[fault_count];
        used = 0;
        if (fault_count == FAULTS_MAX ||
            sscanf(text, "%63[^:,]:%u:%15[a-z]%n", fault->point, &fault->hit, fault->action, &used) != 3) {
            fprintf(stderr, "PGCOURIER_FAULT: cannot read `%s`; write POINT:HIT:ACTION\n", text);
            abort();
        }
        fault_count++;
    }
}

static void write_down(const struct fault *fault)
{
    const char *path = getenv("PGCOURIER_FAULT_LOG");
    char line[256];
    int size =
        snprintf(line, sizeof line, "{\"point\":\"%s\",\"hit\":%u,\"action\":\"%s\",\"pid\":%d,\"at\":%" PRId64 "}\n",
                 fault->point, fault->hit, fault->action, getpid(), clock_wall_us());
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (fd < 0)
        return;
    if (write(fd, line, (size_t)size) != size)
        abort();
    close(fd);
}

static void drop_connections(void)
{
    struct sockaddr_storage peer;
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
        socklen_t size = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0)
            shutdown(fd, SHUT_RDWR);
    }
}

static bool carry_out(const struct fault *fault)
{
    write_down(fault);
    if (strcmp(fault->action, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(fault->action, "stop") == 0)
        raise(SIGSTOP);
    else if (strcmp(fault->action, "drop") == 0)
        drop_connections();
    else if (strcmp(fault->action, "error") == 0)
        return true;
    else
        abort();
    return false;
}

bool fault_point(const char *name)
{
    if (!known)
        read_faults();
    bool fail = false;
    for (size_t i = 0; i < fault_count; i++)
        if (strcmp(faults[i].point, name) == 0 && ++faults[i].seen == faults[i].hit)
            fail = carry_out(&faults[i]) || fail;
    return fail;
}
