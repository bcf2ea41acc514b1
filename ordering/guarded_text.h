/* ordering/guarded_text.h -- a statement's text in two wordings: as it is, and for when there are rows that cannot be
 * read.
 *
 * In its guarded wording a statement takes those rows for the queue's own without asking, and reads nothing of them but
 * id and key. Which ones they are ordering_guard() says before it, in the same transaction. That wording suits no
 * partial index: so it is used only while there are such rows. */
#ifndef ORDERING_GUARDED_TEXT_H
#define ORDERING_GUARDED_TEXT_H

#include "ordering/ordering.h"

struct guarded_text {
    char *plain, *guarded; /* the latter may be NULL, where nothing is ever guarded */
};

/* After a failure, too, it is ready for guarded_text_done(). */
bool guarded_text_init(struct guarded_text *text, const char *template, const struct sql_variable *variables,
                       const struct sql_variable *guarded, struct error *err) MUST_CHECK;
void guarded_text_done(struct guarded_text *text);

const char *guarded_text_of(const struct guarded_text *text, bool guarded);

#endif
