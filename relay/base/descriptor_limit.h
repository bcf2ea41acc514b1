/* relay/base/descriptor_limit.h -- how many files and connections this process may have open.
 *
 * The soft limit is 1,024 nearly everywhere, for the sake of programs with select(2). A relay waits with poll(2) and
 * may be configured to have more connections than that; the programs that it starts are not to inherit more than it was
 * started with. */
#pragma once

#include <sys/resource.h>

/* Raises the soft limit to the hard one. Once, before the first thread; where it is not allowed, it stays. */
void descriptor_limit_raise(void);

/* What a program gets that this process starts: its limits of now, with the soft one no higher than before the raise.
 */
struct rlimit descriptor_limit_of_children(void);
