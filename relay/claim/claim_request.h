/* relay/claim/claim_request.h -- which keys a claim asks for, besides those that the strategy finds.
 *
 * Left out: keys this relay is busy with, and keys whose destination is down. Asked for by name: keys known to have
 * more events (queue->keys.more). A key that one of our claims holds can only be claimed by that claim: its lock
 * belongs to that transaction. */
#pragma once

#include "relay/queue/queue.h"

/* How many keys a claim may take, or events without one, when it has its connection to itself. */
int64_t claim_keys_at_most(const struct queue *queue);

/* How many events the next claim may bring, as far as it is worth waiting for them. */

/* With `holding`, the transaction goes on, and so do its locks; without it, keys that are settled in the same round are
 * free by then. With claim->full, only followed keys whose locks the claim holds are asked for: there must be some. In
 * the round's arena. */
const struct claim_request *claim_request_make(struct claim *claim, bool holding, int64_t keys, instant_us now);

/* The claim under way failed or was cut short: keys it asked for by name and did not get are followed again. */
void claim_follow_again(struct claim *claim, instant_us now);

/* Keys that the claim found and could not take, because this relay is busy with them: they are followed by the
 * claim that has them, when their lanes are settled. */
void claim_follow_missed(struct claim *claim, instant_us now);

/* The open transaction holds the locks of the keys of its batches' lanes and of those in claim->held. If a key is
 * forgotten, no relay can claim it until the transaction ends. */

/* Frees the batches that are settled and remembers their keys. */
void claim_free_settled(struct claim *claim);

/* Keys that `batch`'s claim has locked and that have no lane in it, because nothing of them was left in the table, or
 * there was no room. */
void claim_note_laneless(struct claim *claim, const struct batch *batch);

size_t claim_count_held(const struct claim *claim); /* at least as many as there are */
void claim_forget_held(struct claim *claim);        /* its transaction has ended */

/* Some followed key can be claimed by this claim now. */
bool claim_has_followed(const struct claim *claim);

/* Followed keys whose locks this claim holds and whose earlier events are settled. */
size_t claim_count_followed(const struct claim *claim);
