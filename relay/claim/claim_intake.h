/* relay/claim/claim_intake.h -- what comes back on a claim's connection, read into its batch.
 *
 *   claim_intake_take per result of the round -> claim_intake_end */
#pragma once

#include "relay/queue/pace.h"
#include "relay/queue/queue.h"

/* A good result, or with by_row one row, of statement `index` of the claim's round. False and *err: it cannot be right.
 */
bool claim_intake_take(struct claim *claim, size_t index, const PGresult *res, struct error *err) MUST_CHECK;

/* No more rows come: tells the strategy which were taken. */
void claim_intake_end(struct claim_plan *plan, const struct batch *batch);

/* The claim's result, for the time of the next claim. */
struct pace_claim claim_intake_pace(const struct claim *claim, const struct batch *batch);
