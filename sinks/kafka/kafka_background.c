#include "sinks/kafka/kafka_background.h"

#include "relay/base/arena.h"
#include "relay/base/clock_monotonic.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Shorter than what close() may take, so that a probe under way does not hold it up. */
#define METADATA_TIMEOUT_MS 800

/* The thread and the owner meet here; who comes second frees the memory. */
enum state { RUNNING, DONE, LEFT_ALONE };

struct kafka_background {
    pthread_t thread;
    atomic_int state;
    int wake_fd; /* our own copy: the caller may have closed its own by the time this is over */
    rd_kafka_t *rk;
    char *topic;                                   /* NULL: no question */
    rd_kafka_topic_partition_list_t *close, *open; /* NULL: not about gates */
    enum reach reach;
    bool answered;
    int32_t partitions;
    size_t before_count;
    struct kafka_background *before[];
};

/* Does anybody answer? Which topics there are does not matter. */
static void ask_cluster(struct kafka_background *background)
{
    const struct rd_kafka_metadata *md = NULL;
    background->answered =
        rd_kafka_metadata(background->rk, 0, NULL, &md, METADATA_TIMEOUT_MS) == RD_KAFKA_RESP_ERR_NO_ERROR;
    background->reach = background->answered ? REACH_YES : REACH_NO;
    if (background->answered)
        rd_kafka_metadata_destroy(md);
}

static void ask_topic(struct kafka_background *background)
{
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(background->rk, background->topic, NULL);
    if (!rkt) {
        background->reach = REACH_YES; /* no topic of that name can be: let the event be rejected for it */
        background->answered = true;
        return;
    }
    const struct rd_kafka_metadata *md = NULL;
    background->reach = REACH_NO;
    if (rd_kafka_metadata(background->rk, 0, rkt, &md, METADATA_TIMEOUT_MS) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        background->answered = true;
        if (md->topic_cnt == 1 && md->topics[0].err == RD_KAFKA_RESP_ERR_NO_ERROR && md->topics[0].partition_cnt > 0)
            background->reach = REACH_YES;
        if (background->reach == REACH_YES)
            background->partitions = md->topics[0].partition_cnt;
        rd_kafka_metadata_destroy(md);
    }
    rd_kafka_topic_destroy(rkt);
}

static void move_gates(struct kafka_background *background)
{
    if (background->close->cnt > 0)
        rd_kafka_pause_partitions(background->rk, background->close);
    if (background->open->cnt > 0)
        rd_kafka_resume_partitions(background->rk, background->open);
    /* Nobody else tells the threads that there is something to send now. It waits for nothing. */
    if (background->open->cnt > 0)
        rd_kafka_flush(background->rk, 0);
}

static void lists_free(rd_kafka_topic_partition_list_t *close, rd_kafka_topic_partition_list_t *open)
{
    if (close)
        rd_kafka_topic_partition_list_destroy(close);
    if (open)
        rd_kafka_topic_partition_list_destroy(open);
}

static void background_release(struct kafka_background *background)
{
    lists_free(background->close, background->open);
    free(background->topic);
    free(background);
}

static void work(struct kafka_background *background)
{
    for (size_t i = 0; i < background->before_count; i++)
        kafka_background_free(background->before[i], INSTANT_NEVER);
    if (background->topic && background->topic[0])
        ask_topic(background);
    else if (background->topic)
        ask_cluster(background);
    else if (background->close)
        move_gates(background);
    else
        rd_kafka_destroy(background->rk);
}

static void *run(void *arg)
{
    struct kafka_background *background = arg;
    work(background);
    int fd = background->wake_fd;
    if (atomic_exchange(&background->state, DONE) == LEFT_ALONE)
        background_release(background);
    /* From here on the owner may be done with us: only `fd` is ours. */
    uint64_t one = 1;
    ssize_t ignored = write(fd, &one, sizeof one);
    (void)ignored;
    close(fd);
    return NULL;
}

/* Signals are the main thread's: this one gets none. */
static bool start(struct kafka_background *background)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&background->thread, NULL, run, background);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed == 0;
}

static struct kafka_background *background_new(rd_kafka_t *rk, const char *topic, size_t before_count, int wake_fd)
{
    struct kafka_background *background =
        memory_new(sizeof *background + before_count * sizeof(struct kafka_background *));
    background->rk = rk;
    background->topic = memory_text(topic);
    background->wake_fd = dup(wake_fd);
    return background;
}

static struct kafka_background *start_or_free(struct kafka_background *background)
{
    if (background->wake_fd >= 0 && start(background))
        return background;
    close(background->wake_fd);
    background_release(background);
    return NULL;
}

struct kafka_background *kafka_background_metadata(rd_kafka_t *rk, const char *topic, int wake_fd)
{
    struct kafka_background *background = background_new(rk, topic, 0, wake_fd);
    return start_or_free(background);
}

struct kafka_background *kafka_background_gates(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *close,
                                                rd_kafka_topic_partition_list_t *open, int wake_fd)
{
    struct kafka_background *background = background_new(rk, NULL, 0, wake_fd);
    background->close = close;
    background->open = open;
    return start_or_free(background);
}

struct kafka_background *kafka_background_destroy(rd_kafka_t *rk, struct kafka_background *const before[], size_t n,
                                                  int wake_fd)
{
    struct kafka_background *background = background_new(rk, NULL, n, wake_fd);
    for (size_t i = 0; i < n; i++)
        background->before[background->before_count++] = before[i];
    if (start(background))
        return background;
    work(background);
    close(background->wake_fd);
    background_release(background);
    return NULL;
}

bool kafka_background_done(struct kafka_background *background)
{
    return atomic_load(&background->state) == DONE;
}

enum reach kafka_background_reach(const struct kafka_background *background)
{
    return background->reach;
}

int32_t kafka_background_partitions(const struct kafka_background *background)
{
    return background->partitions;
}

bool kafka_background_is_closed(const struct kafka_background *background, const char *topic, int32_t partition)
{
    const rd_kafka_topic_partition_t *found = rd_kafka_topic_partition_list_find(background->close, topic, partition);
    return found && found->err == RD_KAFKA_RESP_ERR_NO_ERROR;
}

bool kafka_background_answered(const struct kafka_background *background)
{
    return background->answered;
}

static bool join_until(struct kafka_background *background, instant_us deadline)
{
    if (deadline == INSTANT_NEVER || kafka_background_done(background))
        return pthread_join(background->thread, NULL) == 0;
    struct timespec until = clock_monotonic_at(deadline);
    return pthread_clockjoin_np(background->thread, NULL, CLOCK_MONOTONIC, &until) == 0;
}

void kafka_background_free(struct kafka_background *background, instant_us deadline)
{
    if (!background)
        return;
    pthread_t thread = background->thread; /* while it is ours to read */
    int running = RUNNING;
    bool joined = join_until(background, deadline);
    if (!joined && atomic_compare_exchange_strong(&background->state, &running, LEFT_ALONE)) {
        pthread_detach(thread);
        return;
    }
    if (!joined)
        pthread_join(thread, NULL); /* it came to its end just now */
    background_release(background);
}
