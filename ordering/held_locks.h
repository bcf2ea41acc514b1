/* ordering/held_locks.h -- advisory locks that a session goes on holding beyond the transaction that took them. */
#ifndef ORDERING_HELD_LOCKS_H
#define ORDERING_HELD_LOCKS_H

#include "ordering/ordering.h"

struct held_locks {
    int32_t lock_class;
    char *lock_sql, *unlock_sql;
};

/* After a failure, too, it is ready for held_locks_done(). */
bool held_locks_init(struct held_locks *held, const struct ordering_options *options, struct error *err) MUST_CHECK;
void held_locks_done(struct held_locks *held);

/* As in struct ordering_type. */
struct statement held_locks_hold(const struct held_locks *held, const struct key_list *list, bool keep,
                                 struct arena *arena);

#endif
