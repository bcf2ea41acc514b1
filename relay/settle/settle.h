/* relay/settle/settle.h -- write down what became of claimed events.
 *
 *   settle_collect -> its statements in one transaction -> settle_commit (by refusal_commit) | settle_abort
 *
 * Where they run is the caller's choice: in the claim's own transaction when all its lanes are finished, in a short
 * one on the queue's side connection when the other lanes would wait for a straggler. */
#pragma once

#include "ordering/ordering.h"
#include "relay/base/arena.h"
#include "relay/base/clock.h"
#include "relay/queue/batch.h"

struct queue;

/* The rows that are settled together in one transaction. */
struct settle_job {
    struct arena *arena;
    struct settlement settlement;
    struct lane **lanes;
    size_t lane_count;
    size_t row_count; /* that are written: of acked events, and of lanes' ends */
    struct lane *lane_of_first_row;
    size_t missing;               /* events that were not in the table any more */
    instant_us all_refused_since; /* the queue's, when the job was collected */
    instant_us sent_at;
};

/* Takes the finished lanes of `batches` (linked by next), and with `prefixes` the acked events of unfinished ones.
 * Lanes of a lost batch settle what was acked and nothing else. A batch that is halved is collected by itself, and no
 * more of it than that. NULL when there is nothing. */
struct settle_job *settle_collect(struct queue *queue, struct batch *batches, bool prefixes);

/* Nothing has to be written: the lanes can be let go. */
bool settle_is_empty(const struct settle_job *job);

/* The transaction has committed: the lanes are settled, and claims ask for keys with more events. Frees the job. */
void settle_commit(struct queue *queue, struct settle_job *job, instant_us now);

/* The transaction has not committed: the lanes wait to be collected again. Frees the job. */
void settle_abort(struct settle_job *job);

/* Frees the batches of the list that are wholly settled and have nothing in flight. */
void settle_free_batches(struct batch **list);
