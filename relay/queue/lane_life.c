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
    {LANE_SETTLED, LANE_FINISHED, "settle/refusal.c", "the transaction that had settled it in parts is lost",
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
