#include "sinks/kafka/kafka_topics.h"

#include "relay/base/arena.h"

#include <stdlib.h>

#define TOPICS_MAX 256                 /* events of any others go one at a time */
#define ASK_AGAIN_US SECOND_US         /* where there was no answer, or no topic */
#define REFRESH_US (30 * SECOND_US)    /* partitions may have been added */
#define SMALL_US (600 * SECOND_US)     /* then somebody may have raised the limit */
#define SMALL_BYTES ((size_t)4 * 1024) /* below this it is the event that is too large */

static void topic_free(struct kafka_topic *topic)
{
    for (int32_t i = 0; i < topic->room; i++)
        free(topic->partitions[i]);
    free(topic->partitions);
    rd_kafka_topic_destroy(topic->rkt);
    free(topic->name);
    free(topic);
}

/* While we hold on to a topic of that name, librdkafka keeps what it knows of it. */
static struct kafka_topic *topic_new(struct kafka_topics *topics, rd_kafka_t *rk, const char *name)
{
    rd_kafka_topic_t *rkt = topics->count < TOPICS_MAX ? rd_kafka_topic_new(rk, name, NULL) : NULL;
    if (!rkt)
        return NULL;
    struct kafka_topic *topic = memory_new(sizeof *topic);
    topic->name = memory_text(name);
    topic->rkt = rkt;
    topics->count++;
    return topic;
}

/* The one that was used last comes first: most often it is the one. */
static struct kafka_topic *take_to_front(struct kafka_topics *topics, rd_kafka_t *rk, const char *name)
{
    struct kafka_topic **link = &topics->first;
    while (*link && strcmp((*link)->name, name) != 0)
        link = &(*link)->next;
    struct kafka_topic *topic = *link;
    if (topic)
        *link = topic->next;
    else
        topic = topic_new(topics, rk, name);
    if (!topic)
        return NULL;
    topic->next = topics->first;
    topics->first = topic;
    return topic;
}

struct kafka_topic *kafka_topics_find(struct kafka_topics *topics, rd_kafka_t *rk, const char *name, int wake_fd,
                                      instant_us now)
{
    struct kafka_topic *topic = take_to_front(topics, rk, name);
    if (!topic)
        return NULL;
    bool never = topic->asked_at == 0;
    instant_us ask_at = topic->asked_at + (topic->count > 0 ? REFRESH_US : ASK_AGAIN_US);
    if (!topics->question && (never || now >= ask_at)) {
        topic->asked_at = now;
        topics->question = kafka_background_metadata(rk, name, wake_fd);
        topics->asked = topic;
    }
    return topic->count > 0 ? topic : NULL;
}

static void make_room(struct kafka_topic *topic, int32_t count)
{
    if (count <= topic->room)
        return;
    topic->partitions = memory_resize(topic->partitions, (size_t)count, sizeof(struct kafka_partition *));
    for (int32_t i = topic->room; i < count; i++)
        topic->partitions[i] = NULL;
    topic->room = count;
}

void kafka_topics_turn(struct kafka_topics *topics)
{
    if (!topics->question || !kafka_background_done(topics->question))
        return;
    struct kafka_topic *topic = topics->asked;
    int32_t count = kafka_background_partitions(topics->question);
    /* Without an answer, what was known is as good as before. */
    if (kafka_background_answered(topics->question)) {
        make_room(topic, count);
        topic->count = count;
    }
    kafka_background_free(topics->question, INSTANT_NEVER);
    topics->question = NULL;
}

struct kafka_partition *kafka_topic_partition(struct kafka_topic *topic, int32_t number)
{
    struct kafka_partition *partition = topic->partitions[number];
    if (!partition) {
        partition = memory_new(sizeof *partition);
        partition->topic = topic;
        partition->number = number;
        topic->partitions[number] = partition;
    }
    return partition;
}

size_t kafka_topic_batch_bytes(const struct kafka_topic *topic, size_t most, instant_us now)
{
    return now < topic->small_until && topic->batch_bytes < most ? topic->batch_bytes : most;
}

void kafka_topic_refused(struct kafka_topic *topic, size_t bytes, instant_us now)
{
    topic->batch_bytes = bytes / 2 > SMALL_BYTES ? bytes / 2 : SMALL_BYTES;
    topic->small_until = now + SMALL_US;
}

struct kafka_background *kafka_topics_leave(struct kafka_topics *topics)
{
    struct kafka_background *question = topics->question;
    for (struct kafka_topic *topic = topics->first, *next; topic; topic = next) {
        next = topic->next;
        topic_free(topic);
    }
    *topics = (struct kafka_topics){0};
    return question;
}
