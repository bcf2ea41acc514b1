/* ordering/lease_sql.h -- the statements that hold keys beyond their claim's transaction by leases in outbox.parked.
 *
 *   lease_sql_init -> (lease_sql_grant, COMMIT -> lease_sql_renew...)* -> lease_sql_done
 *
 * settler.h ends them, by their tokens. */
#ifndef ORDERING_LEASE_SQL_H
#define ORDERING_LEASE_SQL_H

#include "ordering/ordering.h"

struct lease_sql {
    const char *queue, *owner; /* borrowed */
    int32_t lock_class;
    int64_t term_us; /* 0: nothing is leased, and the rest is empty */
    char *grant, *renew;
};

/* After a failure, too, it is ready for lease_sql_done(). */
bool lease_sql_init(struct lease_sql *ret, const struct ordering_options *options, struct error *err) MUST_CHECK;
void lease_sql_done(struct lease_sql *sql);

/* As grant() and renew() of ordering.h. */
struct statement lease_sql_grant(const struct lease_sql *sql, const struct lease_list *list, int backend_pid,
                                 struct arena *arena);
struct statement lease_sql_renew(const struct lease_sql *sql, const struct span *tokens, size_t count, int backend_pid,
                                 struct arena *arena);

#endif
