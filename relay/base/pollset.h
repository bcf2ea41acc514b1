/* relay/base/pollset.h -- what one turn of the loop waits for.
 *
 *   pollset_clear -> (pollset_add | pollset_deadline)* -> pollset_wait -> pollset_revents*
 *
 * Level-triggered poll(2). The same descriptor may be added more than once; each adder sees the union. */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/error.h"

#include <poll.h>

struct pollset;

struct pollset *pollset_new(void);
void pollset_free(struct pollset *ps);

void pollset_clear(struct pollset *ps);
void pollset_add(struct pollset *ps, int fd, short events);     /* POLLIN, POLLOUT; fd < 0 is ignored */
void pollset_deadline(struct pollset *ps, instant_us deadline); /* wake up at the latest then */
instant_us pollset_next_deadline(const struct pollset *ps);     /* INSTANT_NEVER if none */

/* Waits for a descriptor, the nearest deadline or a signal. True also on EINTR. */
bool pollset_wait(struct pollset *ps, instant_us now, struct error *err) MUST_CHECK;

/* How long the last wait was: next to nothing when something had come before it. */
int64_t pollset_waited_us(const struct pollset *ps);

/* What poll(2) reported for `fd`: 0 if nothing or not in the set. */
short pollset_revents(const struct pollset *ps, int fd);
