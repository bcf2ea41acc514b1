#include "relay/claim/ahead.h"

#include "relay/deliver/outlet.h"
#include "relay/queue/queue.h"

#define MEASURE_US (250 * MS_US)
#define SLOW_PER_S 2000 /* events: to claim each by itself takes the server a twentieth of a core then */
#define BEHIND_US (250 * MS_US)
#define LANES_A_PLACE 4
#define LANES_MIN 64   /* where there are few places, claims are to be worth their round trip */
#define BRIEF_PER_S 20 /* deliveries a place and second: events claimed for it too early are sent within 0.2 s */
#define ROOM_PART 4

static bool goes_one_by_one(const struct queue *queue)
{
    return !queue->outlet->sink->traits && !queue->ordering->type->keyless;
}

/* Before anything is known of it a sink counts as slow, but not as behind. */
void ahead_turn(struct queue *queue, instant_us now)
{
    struct ahead *ahead = &queue->ahead;
    int64_t elapsed_us = now - ahead->measured_at;
    if (ahead->measured_at == 0) {
        ahead->slow = goes_one_by_one(queue);
        ahead->measured_at = now;
    } else if (elapsed_us >= MEASURE_US) {
        int64_t taken = (int64_t)(queue->metrics.delivered - ahead->delivered);
        bool few = taken < SLOW_PER_S && taken * SECOND_US < SLOW_PER_S * elapsed_us;
        ahead->slow = few && goes_one_by_one(queue);
        ahead->brief = taken * SECOND_US >= (int64_t)outlet_places(queue->outlet) * BRIEF_PER_S * elapsed_us;
        ahead->known = true;
        ahead->delivered = queue->metrics.delivered;
        ahead->measured_at = now;
    }
    if (!ahead->slow)
        ahead->behind_until = 0;
    else if (ahead->known && queue->outlet->ready_count >= outlet_places(queue->outlet))
        ahead->behind_until = now + BEHIND_US;
}

bool ahead_is_behind(const struct queue *queue, instant_us now)
{
    return now < queue->ahead.behind_until;
}

/* A sink with few places for long deliveries. */
static bool has_few_places(const struct queue *queue)
{
    return queue->outlet->sink->keys_max > 0;
}

int64_t ahead_places(const struct queue *queue)
{
    if (!has_few_places(queue))
        return INT64_MAX;
    return (int64_t)outlet_places(queue->outlet) * (queue->ahead.brief ? LANES_A_PLACE : 1);
}

static bool is_ahead_of_few(const struct queue *queue)
{
    return queue->ahead.slow || has_few_places(queue);
}

bool ahead_takes_turns(const struct queue *queue)
{
    return is_ahead_of_few(queue) && !queue->ordering->type->keyless;
}

int64_t ahead_room(const struct queue *queue, int64_t open)
{
    if (!is_ahead_of_few(queue))
        return INT64_MAX;
    int64_t most = ahead_places(queue);
    if (!has_few_places(queue)) {
        most = (int64_t)outlet_places(queue->outlet) * LANES_A_PLACE;
        most = most < LANES_MIN ? LANES_MIN : most;
    }
    int64_t room = most - open;
    return room < most / ROOM_PART ? 0 : room;
}
