/* relay/claim_request.h -- which keys a claim asks for, besides those that the strategy finds.
 *
 * Left out: keys this relay is busy with, and keys whose destination is down. Asked for by name: keys known to have
 * more events (queue->follow). A key that one of our claims holds can only be claimed by that claim: its lock
 * belongs to that transaction. */
#ifndef RELAY_CLAIM_REQUEST_H
#define RELAY_CLAIM_REQUEST_H

#include "relay/queue.h"

/* With `holding`, the transaction goes on and its own unfinished keys must not be claimed again. In the round's arena.
 */
const struct claim_request *claim_request_make(struct claim *claim, bool holding, int64_t keys, instant_us now);

/* The claim under way failed or was cut short: keys it asked for by name and did not get are followed again. */
void claim_follow_again(struct claim *claim, instant_us now);

/* Keys that the claim found and could not take, because this relay is busy with them: they are followed by whoever
 * has them, when that is done. */
void claim_follow_missed(struct claim *claim, instant_us now);

/* The open transaction goes on beyond its first claim: remembers whose locks it holds. */
void claim_note_held(struct claim *claim);
void claim_forget_held(struct claim *claim); /* its transaction has ended */

/* Some followed key can be claimed by this claim now. */
bool claim_has_followed(const struct claim *claim);

/* Followed keys that this claim already holds the locks of. */
size_t claim_count_followed(const struct claim *claim);

#endif
