/* ordering/settler.h -- what became of events, written down: the part of a strategy that all of them have in common.
 *
 *   settler_init -> (settler_settle -> settler_settled per result)* -> settler_done
 *
 * They differ in what they lock and read; what is locked is deleted, archived, parked or buried by the same statements.
 */
#ifndef ORDERING_SETTLER_H
#define ORDERING_SETTLER_H

#include "ordering/guarded_text.h"
#include "ordering/ordering.h"

/* In the order they run. */
enum settle_kind {
    SETTLE_LEASES,
    SETTLE_GUARD,
    SETTLE_PLACED, /* what was delivered, by its places; or */
    SETTLE_DONE,   /* by its ids */
    SETTLE_BURY,
    SETTLE_UNDELETED,
    SETTLE_PARK,
    SETTLE_UNPARK,
    SETTLE_MOVE,
    SETTLE_GIVE_BACK,
    SETTLE_KINDS
};

struct settler {
    const char *queue;
    int32_t lock_class;
    bool archive; /* and nothing goes on */
    struct guarded_text texts[SETTLE_KINDS];
};

/* After a failure, too, it is ready for settler_done(). */
bool settler_init(struct settler *settler, const struct ordering_options *options, struct error *err) MUST_CHECK;
void settler_done(struct settler *settler);

/* As in struct ordering_type. */
size_t settler_settle(const struct settler *settler, const struct settlement *s, struct arena *arena,
                      struct statement *ret);
/* Statement `index` of it looks at rows that were not delivered: at whether they are the queue's. */
bool settler_looks_on(const struct settlement *s, size_t index);

void settler_settled(const struct settlement *s, size_t index, const PGresult *res, size_t *ret_missing);

#endif
