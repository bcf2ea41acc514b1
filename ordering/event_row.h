/* ordering/event_row.h -- a row of per_key_read.sql, which is an event or a key that waited and has none any more. */
#ifndef ORDERING_EVENT_ROW_H
#define ORDERING_EVENT_ROW_H

#include "ordering/ordering.h"

/* Whether rows of so many options.extra_columns can be read: false and *err (ERROR_INTERNAL) when they are too many. A
 * destination has fewer parts, see relay/route/route.c. */
bool event_row_check(const struct ordering_options *options, struct error *err) MUST_CHECK;

/* Into the intake; false and *err (ERROR_INTERNAL) when the row is none, and what the intake says. */
bool event_row_read(const struct ordering_options *options, const PGresult *res, int row,
                    const struct claim_intake *intake, struct error *err) MUST_CHECK;

#endif
