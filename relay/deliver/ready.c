#include "relay/deliver/ready.h"

#include "relay/deliver/outlet.h"

void ready_add(struct outlet *outlet, struct lane *lane)
{
    lane->queued = true;
    lane->ready_next = NULL;
    lane->ready_prev = outlet->ready_end;
    if (outlet->ready_end)
        outlet->ready_end->ready_next = lane;
    else
        outlet->ready = lane;
    outlet->ready_end = lane;
    outlet->ready_count++;
}

void ready_add_first(struct outlet *outlet, struct lane *lane)
{
    lane->queued = true;
    lane->ready_prev = NULL;
    lane->ready_next = outlet->ready;
    *(outlet->ready ? &outlet->ready->ready_prev : &outlet->ready_end) = lane;
    outlet->ready = lane;
    outlet->ready_count++;
}

void ready_remove(struct outlet *outlet, struct lane *lane)
{
    *(lane->ready_prev ? &lane->ready_prev->ready_next : &outlet->ready) = lane->ready_next;
    *(lane->ready_next ? &lane->ready_next->ready_prev : &outlet->ready_end) = lane->ready_prev;
    lane->queued = false;
    outlet->ready_count--;
}

/* Events of one lane that may be in flight together. */
static size_t most_of_lane(const struct outlet *outlet, const struct lane *lane)
{
    if (outlet->sink->traits & SINK_KEEPS_KEY_ORDER)
        return SIZE_MAX;
    /* An event that has failed before may fail again, and with it the events behind it in a run. */
    if (!(outlet->sink->traits & SINK_TAKES_RUNS) || lane->unsent->event.attempt > 1)
        return 1;
    const struct sink_run_limits *run = &outlet->sink->type->run;
    size_t lanes = outlet->ready_count + outlet->lanes_in_flight;
    size_t share = (size_t)outlet->config->max_in_flight / lanes;
    if (share < run->events_min)
        return 1;
    return share < run->events_max ? share : run->events_max;
}

/* May `d` join the run that begins with `first`, and that has so many bytes with it? */
static bool joins(const struct outlet *outlet, const struct delivery *d, const struct delivery *first, size_t bytes)
{
    return bytes <= outlet->sink->type->run.bytes_max && span_equal(d->destination, first->destination);
}

size_t ready_take(struct outlet *outlet, struct lane *lane, struct delivery **ds, size_t room, instant_us now)
{
    size_t n = 0, bytes = 0, most = most_of_lane(outlet, lane);
    bool run = !(outlet->sink->traits & SINK_KEEPS_KEY_ORDER);
    ready_remove(outlet, lane);
    while (n < room && n < most && lane->unsent && !ready_is_refused(lane->unsent)) {
        struct delivery *d = &lane->unsent->delivery;
        d->joined = run && n > 0;
        bytes += d->event->payload.size;
        if (d->joined && !joins(outlet, d, ds[0], bytes))
            break;
        lane->unsent->submitted_at = now;
        ds[n++] = d;
        lane->unsent = lane->unsent->next;
        if (lane->in_flight++ == 0)
            outlet->lanes_in_flight++;
    }
    return n;
}

void ready_returned(struct outlet *outlet, struct lane *lane)
{
    if (--lane->in_flight == 0)
        outlet->lanes_in_flight--;
}
