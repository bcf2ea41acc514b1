/* relay/route/destination.h -- event -> destination, by the queue's template.
 *
 * A template is text with {key}, {type}, {id} or {COLUMN}; {{ and }} stand for braces. */
#pragma once

#include "relay/base/arena.h"
#include "relay/base/event.h"

#include <stdbool.h>

struct route;

/* `extra` lists the columns that event->columns holds, in order. A NULL template is an empty destination. NULL and
 * *err (ERROR_CONFIG) when the template is broken or names something unknown. */
struct route *route_new(const char *template, const char *const *extra, size_t extra_count,
                        struct error *err) MUST_CHECK;
void route_free(struct route *route);

/* The destination of every event, when the template names no part of one; else absent. */
struct span route_static(const struct route *route);

/* In the arena, with a NUL behind it. False and *err (ERROR_REFUSED) when the event lacks a part that the template
 * names: it can never be delivered. */
bool route_event(const struct route *route, const struct event *event, struct arena *arena, struct span *ret,
                 struct error *err) MUST_CHECK;
