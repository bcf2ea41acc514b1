/* ordering/claim_rows.h -- how many rows a claim looks at and how many events it asks for, learnt from those before. */
#ifndef ORDERING_CLAIM_ROWS_H
#define ORDERING_CLAIM_ROWS_H

#include "ordering/ordering.h"

struct claim_rows {
    int64_t limit; /* events asked for: adapts to the size of the rows */
    int64_t look;  /* rows to look at for every 8 keys wanted: adapts to how many of them are of use */
};

void claim_rows_init(struct claim_rows *rows);

/* Rows to look at for so many keys; `most`: where many of them may be of no use. */
int64_t claim_rows_look(const struct claim_rows *rows, int64_t keys, bool most);

/* Rows of each end of a plan. False: one of them has nothing to look at, and the other is given all. Else the oldest
 * has `share` of 100, and what that has too few ids for goes to the newest; the other way round it might be what is new
 * that has to wait. */
bool claim_rows_split(const struct scan_plan *scan, int64_t rows, int64_t share, int64_t *ret_newest,
                      int64_t *ret_oldest);

/* As many rows as keys were enough lately. */
bool claim_rows_suffice(const struct claim_rows *rows);

/* How many of 100 places go to the oldest end, of which `share` do in the long run, */
int64_t claim_rows_share(const struct claim_request *request, int64_t share);

/* or how many of the claim's own, where that is no whole number by chance, */
int64_t claim_rows_part(const struct claim_request *request, int64_t share);

/* and whether waits that are over come behind everything else. */
bool claim_rows_waits_last(const struct claim_request *request);

/* `plan` is done. Where half of the events that may be asked for were returned, the next claim may ask for more: one
 * that gets all it asks for has locked keys in vain, and is followed by some that choose. */
void claim_rows_done(struct claim_rows *rows, const struct claim_plan *plan);

/* It has failed. Some of its rows had come, so it may have been for their size, and the next one asks for fewer. */
void claim_rows_failed(struct claim_rows *rows, const struct claim_plan *plan);

#endif
