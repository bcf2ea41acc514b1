#include "relay/queue/lane_life.h"

#include <stddef.h>

static const char *const names[LANE_STATES] = {
    [LANE_OPEN] = "OPEN",         [LANE_STOPPED] = "STOPPED",   [LANE_BLOCKED] = "BLOCKED",
    [LANE_FINISHED] = "FINISHED", [LANE_SETTLING] = "SETTLING", [LANE_SETTLED] = "SETTLED"};

static const struct move {
    enum lane_state from, to;
    const char *by, *when, *written;
} moves[] = {
    {LANE_OPEN, LANE_STOPPED, "deliver/deliver.c", "a delivery failed, or the lane is to be given back", "nothing"},
    {LANE_OPEN, LANE_FINISHED, "deliver/deliver.c, queue/batch.c",
     "every event is acked, or the lane has no event to send", "nothing"},
    {LANE_STOPPED, LANE_FINISHED, "deliver/deliver.c", "the last event in flight has its verdict", "nothing"},
    {LANE_FINISHED, LANE_SETTLING, "settle/settle.c", "a settlement takes the lane's end",
     "what its outcome says, uncommitted"},
    {LANE_FINISHED, LANE_BLOCKED, "settle/blocked.c", "another session holds the row", "nothing"},
    {LANE_BLOCKED, LANE_FINISHED, "settle/blocked.c, hold/lease.c", "the wait is over, or the lease is lost",
     "nothing"},
    {LANE_SETTLING, LANE_SETTLED, "settle/settle.c", "the settlement has committed", "what its outcome says"},
    {LANE_SETTLING, LANE_FINISHED, "settle/settle.c", "the settlement was refused, or its connection is lost",
     "nothing"},
    {LANE_SETTLED, LANE_FINISHED, "settle/refusal.c", "the transaction that had settled it by halves is lost",
     "nothing: what was written is undone"},
};

#define MOVES (sizeof moves / sizeof moves[0])

bool lane_life_has(enum lane_state from, enum lane_state to)
{
    for (size_t i = 0; i < MOVES; i++)
        if (moves[i].from == from && moves[i].to == to)
            return true;
    return false;
}

void lane_life_print(FILE *out)
{
    fprintf(out, "| from | to | moved by | when | written |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < MOVES; i++)
        fprintf(out, "| %s | %s | %s | %s | %s |\n", names[moves[i].from], names[moves[i].to], moves[i].by,
                moves[i].when, moves[i].written);
}

static const char *const hold_names[HOLDS] = {
    [HOLD_TRANSACTION] = "TRANSACTION", [HOLD_SESSION] = "SESSION", [HOLD_FREED] = "FREED", [HOLD_LEASE] = "LEASE",
    [HOLD_CALLED_BACK] = "CALLED_BACK", [HOLD_LOST] = "LOST"};

static const struct hold_move {
    enum hold from, to;
    const char *of, *by, *when, *written;
} hold_moves[] = {
    {HOLD_TRANSACTION, HOLD_SESSION, "lane", "hold/session_lock.c", "the session is told to take the lock",
     "the session's lock"},
    {HOLD_TRANSACTION, HOLD_SESSION, "batch", "hold/session_lock.c", "the session has the locks", "nothing"},
    {HOLD_SESSION, HOLD_FREED, "lane", "hold/session_lock.c", "the lane is settled",
     "the session's lock is freed, behind the COMMIT"},
    {HOLD_TRANSACTION, HOLD_LEASE, "lane, batch", "hold/lease.c", "the COMMIT that leases it may have been carried out",
     "an entry with the lane's token"},
    {HOLD_LEASE, HOLD_CALLED_BACK, "lane", "hold/lease.c", "no renewal would come before the term is over", "nothing"},
    {HOLD_CALLED_BACK, HOLD_LEASE, "lane", "hold/lease.c", "a renewal has begun a new term", "the entry's time"},
    {HOLD_LEASE, HOLD_LOST, "lane", "hold/lease.c, settle/blame.c",
     "the token is gone, or not even the key's wait can be written", "nothing"},
    {HOLD_CALLED_BACK, HOLD_LOST, "lane", "hold/lease.c, settle/blame.c", "the same", "nothing"},
    {HOLD_TRANSACTION, HOLD_LOST, "batch", "hold/orphan.c", "the transaction is lost", "nothing"},
    {HOLD_SESSION, HOLD_LOST, "batch", "hold/orphan.c", "the session is lost", "nothing"},
};

#define HOLD_MOVES (sizeof hold_moves / sizeof hold_moves[0])

bool lane_life_has_hold(enum hold from, enum hold to)
{
    for (size_t i = 0; i < HOLD_MOVES; i++)
        if (hold_moves[i].from == from && hold_moves[i].to == to)
            return true;
    return false;
}

void lane_life_print_holds(FILE *out)
{
    fprintf(out, "| from | to | of | moved by | when | written |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < HOLD_MOVES; i++)
        fprintf(out, "| %s | %s | %s | %s | %s | %s |\n", hold_names[hold_moves[i].from], hold_names[hold_moves[i].to],
                hold_moves[i].of, hold_moves[i].by, hold_moves[i].when, hold_moves[i].written);
}
