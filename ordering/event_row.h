/* ordering/event_row.h -- a row of per_key_read.sql, which is an event or a key that waited and has none any more. */
#ifndef ORDERING_EVENT_ROW_H
#define ORDERING_EVENT_ROW_H

#include "ordering/ordering.h"

/* No queue has more options.extra_columns: a destination has fewer parts, see relay/route.c. */
#define EVENT_ROW_EXTRA_MAX 64

/* Into the intake; false and *err (ERROR_INTERNAL) when the row is none, and what the intake says. */
bool event_row_read(const struct ordering_options *options, const PGresult *res, int row,
                    const struct claim_intake *intake, struct error *err) MUST_CHECK;

#endif
