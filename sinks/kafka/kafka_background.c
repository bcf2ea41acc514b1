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
static void ask_cluster(struct kafka_background *aside)
{
    const struct rd_kafka_metadata *md = NULL;
    aside->answered = rd_kafka_metadata(aside->rk, 0, NULL, &md, METADATA_TIMEOUT_MS) == RD_KAFKA_RESP_ERR_NO_ERROR;
    aside->reach = aside->answered ? REACH_YES : REACH_NO;
    if (aside->answered)
        rd_kafka_metadata_destroy(md);
}

static void ask_topic(struct kafka_background *aside)
{
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(aside->rk, aside->topic, NULL);
    if (!rkt) {
        aside->reach = REACH_YES; /* no topic of that name can be: let the event be rejected for it */
        aside->answered = true;
        return;
    }
    const struct rd_kafka_metadata *md = NULL;
    aside->reach = REACH_NO;
    if (rd_kafka_metadata(aside->rk, 0, rkt, &md, METADATA_TIMEOUT_MS) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        aside->answered = true;
        if (md->topic_cnt == 1 && md->topics[0].err == RD_KAFKA_RESP_ERR_NO_ERROR && md->topics[0].partition_cnt > 0)
            aside->reach = REACH_YES;
        if (aside->reach == REACH_YES)
            aside->partitions = md->topics[0].partition_cnt;
        rd_kafka_metadata_destroy(md);
    }
    rd_kafka_topic_destroy(rkt);
}

static void move_gates(struct kafka_background *aside)
{
    if (aside->close->cnt > 0)
        rd_kafka_pause_partitions(aside->rk, aside->close);
    if (aside->open->cnt > 0)
        rd_kafka_resume_partitions(aside->rk, aside->open);
    /* Nobody else tells the threads that there is something to send now. It waits for nothing. */
    if (aside->open->cnt > 0)
        rd_kafka_flush(aside->rk, 0);
}

static void lists_free(rd_kafka_topic_partition_list_t *close, rd_kafka_topic_partition_list_t *open)
{
    if (close)
        rd_kafka_topic_partition_list_destroy(close);
    if (open)
        rd_kafka_topic_partition_list_destroy(open);
}

static void aside_release(struct kafka_background *aside)
{
    lists_free(aside->close, aside->open);
    free(aside->topic);
    free(aside);
}

static void work(struct kafka_background *aside)
{
    for (size_t i = 0; i < aside->before_count; i++)
        kafka_background_free(aside->before[i], INSTANT_NEVER);
    if (aside->topic && aside->topic[0])
        ask_topic(aside);
    else if (aside->topic)
        ask_cluster(aside);
    else if (aside->close)
        move_gates(aside);
    else
        rd_kafka_destroy(aside->rk);
}

static void *run(void *arg)
{
    struct kafka_background *aside = arg;
    work(aside);
    int fd = aside->wake_fd;
    if (atomic_exchange(&aside->state, DONE) == LEFT_ALONE)
        aside_release(aside);
    /* From here on the owner may be done with us: only `fd` is ours. */
    uint64_t one = 1;
    ssize_t ignored = write(fd, &one, sizeof one);
    (void)ignored;
    close(fd);
    return NULL;
}

/* Signals are the main thread's: this one gets none. */
static bool start(struct kafka_background *aside)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&aside->thread, NULL, run, aside);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed == 0;
}

static struct kafka_background *aside_new(rd_kafka_t *rk, const char *topic, size_t before_count, int wake_fd)
{
    struct kafka_background *aside = memory_new(sizeof *aside + before_count * sizeof(struct kafka_background *));
    aside->rk = rk;
    aside->topic = memory_text(topic);
    aside->wake_fd = dup(wake_fd);
    return aside;
}

static struct kafka_background *start_or_free(struct kafka_background *aside)
{
    if (aside->wake_fd >= 0 && start(aside))
        return aside;
    close(aside->wake_fd);
    aside_release(aside);
    return NULL;
}

struct kafka_background *kafka_background_metadata(rd_kafka_t *rk, const char *topic, int wake_fd)
{
    struct kafka_background *aside = aside_new(rk, topic, 0, wake_fd);
    return start_or_free(aside);
}

struct kafka_background *kafka_background_gates(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *close,
                                                rd_kafka_topic_partition_list_t *open, int wake_fd)
{
    struct kafka_background *aside = aside_new(rk, NULL, 0, wake_fd);
    aside->close = close;
    aside->open = open;
    return start_or_free(aside);
}

struct kafka_background *kafka_background_destroy(rd_kafka_t *rk, struct kafka_background *const before[], size_t n,
                                                  int wake_fd)
{
    struct kafka_background *aside = aside_new(rk, NULL, n, wake_fd);
    for (size_t i = 0; i < n; i++)
        aside->before[aside->before_count++] = before[i];
    if (start(aside))
        return aside;
    work(aside);
    close(aside->wake_fd);
    aside_release(aside);
    return NULL;
}

bool kafka_background_done(struct kafka_background *aside)
{
    return atomic_load(&aside->state) == DONE;
}

enum reach kafka_background_reach(const struct kafka_background *aside)
{
    return aside->reach;
}

int32_t kafka_background_partitions(const struct kafka_background *aside)
{
    return aside->partitions;
}

bool kafka_background_is_closed(const struct kafka_background *aside, const char *topic, int32_t partition)
{
    const rd_kafka_topic_partition_t *found = rd_kafka_topic_partition_list_find(aside->close, topic, partition);
    return found && found->err == RD_KAFKA_RESP_ERR_NO_ERROR;
}

bool kafka_background_answered(const struct kafka_background *aside)
{
    return aside->answered;
}

static bool join_until(struct kafka_background *aside, instant_us deadline)
{
    if (deadline == INSTANT_NEVER || kafka_background_done(aside))
        return pthread_join(aside->thread, NULL) == 0;
    struct timespec until = clock_monotonic_at(deadline);
    return pthread_clockjoin_np(aside->thread, NULL, CLOCK_MONOTONIC, &until) == 0;
}

void kafka_background_free(struct kafka_background *aside, instant_us deadline)
{
    if (!aside)
        return;
    pthread_t thread = aside->thread; /* while it is ours to read */
    int running = RUNNING;
    bool joined = join_until(aside, deadline);
    if (!joined && atomic_compare_exchange_strong(&aside->state, &running, LEFT_ALONE)) {
        pthread_detach(thread);
        return;
    }
    if (!joined)
        pthread_join(thread, NULL); /* it came to its end just now */
    aside_release(aside);
}
