/* relay/claim/claim_send.h -- what travels to the server on a claim's connection: one round at a time. */
#pragma once

#include "relay/claim/claim_state.h"

struct settle_job;

/* Settles `job` (NULL: nothing) and commits, when `commit`; claims `keys` keys, unless 0. With nothing of all that it
 * says a word in the transaction, which goes on. */
void claim_send_round(struct claim *claim, struct settle_job *job, bool commit, int64_t keys, instant_us now);

/* From here on the claim's batches are settled by halves in one transaction: see refusal.h. */
void claim_begin_halving(struct claim *claim);

/* Sets queue->claiming.asking_since, after a claim connection has changed its state. */
void claim_note_asking(struct queue *queue);
