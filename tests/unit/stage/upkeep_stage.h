/* tests/unit/stage/upkeep_stage.h -- a queue whose regular tasks are answered by hand.
 *
 *   set_up -> look... -> tear_down */
#ifndef TESTS_UNIT_UPKEEP_STAGE_H
#define TESTS_UNIT_UPKEEP_STAGE_H

#include "relay/side/upkeep.h"
#include "tests/unit/stage/hand_made.h"

#define NOW (10 * SECOND_US)

static struct stage stage;
static struct queue *queue;
static struct arena *arena;
static struct lane *first, *second, *alone;

static inline void set_up(void)
{
    static struct outlet outlet;
    stage_init(&stage, "there");
    queue = &stage.queue;
    queue->outlet = &outlet;
    arena = arena_new();
    static struct table table;
    queue->table = &table;
    struct batch *batch = stage_batch(&stage);
    queue->arrived = NULL;
    first = stage_lane_of_three(batch, 1, "a");
    second = stage_lane_of_three(batch, 4, "b");
    alone = stage_event(batch, 7, NULL)->lane;
    upkeep_open(queue);
}

static inline void open_again(void)
{
    upkeep_close(queue);
    upkeep_open(queue);
}

static inline void tear_down(void)
{
    upkeep_close(queue);
    arena_free(arena);
    stage_done(&stage);
}

static inline void add_text(PGresult *res, int row, int column, const char *text)
{
    static char buffer[64];
    snprintf(buffer, sizeof buffer, "%s", text ? text : "");
    ck_assert(PQsetvalue(res, row, column, text ? buffer : NULL, text ? (int)strlen(text) : -1));
}

/* A look that finds these, with NULL for the queue itself. */
static inline void look(const char *const *keys, int count)
{
    static char names[4][8] = {"key", "by", "reason", "due"};
    PGresAttDesc columns[4] = {{.name = names[0]}, {.name = names[1]}, {.name = names[2]}, {.name = names[3]}};
    PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert(PQsetResultAttrs(res, 4, columns));
    for (int row = 0; row < count; row++) {
        add_text(res, row, 0, keys[row]);
        add_text(res, row, 1, "ops");
        add_text(res, row, 2, "why");
    }
    queue->upkeep->task = UPKEEP_LOOK;
    upkeep_take(queue, res, NOW);
    upkeep_end(queue, NULL, NOW);
    PQclear(res);
}

#endif
