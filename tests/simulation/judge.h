/* tests/simulation/judge.h -- the guarantees of DESIGN.md, checked at every step of a run.
 *
 * An event may be submitted again only after something has happened that excuses it: its delivery was not acked, or the
 * lock of its key was lost while it was in the table, or with leases, one ran out and was taken over. So G3 and G4 are
 * one rule: each excuse is worth one submission. Where nothing is ordered, each event is a key of its own. */
#ifndef TESTS_SIMULATION_JUDGE_H
#define TESTS_SIMULATION_JUDGE_H

#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "sinks/delivery.h"
#include "tests/simulation/store.h"

void judge_clear(void);

/* ---- what happens ---- */

void judge_committed(const struct row *row); /* its producer's transaction */
/* As part of a claim; `paused`: it was told besides that the queue is. */
void judge_read(int process, const struct row *row, bool paused);
void judge_submitted(int process, int64_t id, unsigned attempt, bool joined);
/* `can_end`: its relay could have called it back until now. */
void judge_arrived(int process, int64_t id, bool can_end);
void judge_verdict(int process, int64_t id, enum verdict verdict, enum error_kind kind);
void judge_deleted(int process, const struct row *row, bool bury);
void judge_refused(const struct row *row, bool alone); /* the table does not let it go */
void judge_put_back(const struct row *row);            /* a dead letter, by hand */
void judge_opened(const struct wait *wait);            /* a closed key, by hand */
void judge_parked(int process, int64_t id, int64_t attempts, bool closed);

/* The transaction of this backend ends without a commit, or its session does; before its locks are free. */
void judge_locks_lost(int backend, int process, bool session);
void judge_rows_lost(int backend, int process, int txn); /* the rows that it has locked */
/* What it has lost by now, its client knows from `at` on. */
void judge_client_told(int backend, instant_us at);
void judge_process_gone(int process); /* nobody is left who would have to be told */

/* ---- what must be ---- */

bool judge_is_dead(const struct row *row); /* a dead letter */

/* Every event has arrived or is a dead letter, and nothing waits. */
bool judge_is_drained(void);

/* A relay that was to run until the table is empty has ended by itself. */
void judge_empty(int process);

/* A relay that was told to stop has ended by itself: its sessions keep no lock. */
void judge_at_rest(int process);

/* At the end of the run. */
void judge_end(bool drained);

void judge_violation(const char *guarantee, const struct row *row, const char *format, ...) PRINTF_LIKE(3, 4);

#endif
