/* relay/side/unreadable_search.h -- the search for rows that cannot be read: which rows are tried next.
 *
 * Where the failed claim has looked, a list of ids is tried at once; while that fails, its halves, down to single rows.
 * No row is blamed before the same statement has passed for no row at all, else the statement is wrong; and for some
 * other row, else everything is.
 *
 *   unreadable_search_claim | _settlement | _again -> (unreadable_search_statement -> unreadable_search_take per
 *   result -> unreadable_search_ended)* until `over` -> unreadable_search_free */
#pragma once

#include "ordering/ordering.h"
#include "relay/base/error.h"
#include "relay/base/halving.h"
#include "relay/config/config.h"
#include "relay/queue/queue_parts.h"

struct queue;

#define UNREADABLE_WHY "its row cannot be read" /* how the reason of a wait begins */

struct search_source;

struct search_found {
    int64_t id;
    struct error cause;
};

enum search_step {
    SEARCH_NOTHING, /* is the statement right? */
    SEARCH_LIST,    /* the next ids of a source */
    SEARCH_TRY,     /* a part of them */
    SEARCH_KNOWN    /* do keys wait for what was found already? */
};

#define SEARCH_IDS_MAX 16384
#define SEARCH_FOUND_MAX 1024

struct unreadable_search {
    struct arena *arena;
    struct search_source *sources;
    size_t source_count, source;
    enum search_step step;
    bool again;   /* of rows that are known: those that are found are so still */
    bool over;    /* there is nothing more to be tried */
    bool blames;  /* and what was found is to blame */
    int64_t from; /* where the source's list goes on */
    size_t most;  /* ids of the next list */
    int64_t ids[SEARCH_IDS_MAX];
    size_t id_count;
    size_t listed; /* by the last list, with those that are known */
    int64_t last;  /* of these */
    int64_t rows;  /* of the source, that could be read */
    int64_t key_limit;
    struct halving_list parts; /* of them, to be tried */
    size_t readable[2];        /* rows, by the condition alone; by all columns */
    struct search_found found[SEARCH_FOUND_MAX];
    size_t found_count, source_found;
    bool found_read;
};

/* Where a claim of this plan has looked, whose round has failed. NULL: there is nothing to be tried. */
struct unreadable_search *unreadable_search_claim(const struct queue_config *config, const struct claim_plan *plan);

/* Of the keys whose next event this settlement was to find. NULL: there are none. */
struct unreadable_search *unreadable_search_settlement(const struct settlement *s);

/* Of these rows. */
struct unreadable_search *unreadable_search_again(const int64_t *ids, size_t count);

void unreadable_search_free(struct unreadable_search *search); /* NULL is a no-op */

struct statement unreadable_search_statement(const struct queue *queue, const struct unreadable_search *search,
                                             struct arena *arena);
void unreadable_search_take(const struct queue *queue, struct unreadable_search *search, const PGresult *res);
void unreadable_search_ended(const struct queue *queue, struct unreadable_search *search, const struct error *failure);
