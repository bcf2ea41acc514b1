#include "relay/side/rest_question.h"

#include "ordering/result.h"
#include "relay/base/lesser.h"
#include "relay/queue/queue.h"
#include "relay/table/table.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOK_MAX_US SECOND_US
#define LEASE_PART 6 /* of its term: renewals wait for a look */

enum { WRITERS_OBSTACLE, WRITERS_HELD, WRITERS_LIST, WRITERS_FAMILY };
enum { LOOK_IDLE, LOOK_WAITING, LOOK_DUE };

static struct statement writers_question(const struct queue *queue, bool left, struct arena *arena)
{
    struct statement st = statement_of(sql_rest_writers);
    statement_add_int(&st, arena, queue->table->oid);
    statement_add_text(&st, queue->config->where);
    statement_add_int(&st, arena, queue->rest.backend_pid);
    statement_add_text(&st, left ? queue->rest_answer.writers : NULL);
    statement_add_text(&st, queue->table->name_sql);
    return st;
}

static struct statement look_question(const struct queue *queue, struct arena *arena)
{
    struct statement st = statement_of(queue->sql.rest_look);
    statement_add_text(&st, queue->config->name);
    statement_add_int(&st, arena, !queue->ordering->type->keyless);
    statement_add_text(&st, queue->config->window);
    statement_add_text(&st, queue->config->window_zone);
    statement_add_int(&st, arena, table_passes_delayed(queue->table, queue->config));
    return st;
}

bool rest_question_timeout(const struct queue *queue, struct arena *arena, struct statement *ret)
{
    if (queue->side_requests.rest != REST_ASKS_LOOK)
        return false;
    int64_t most_us = lesser(LOOK_MAX_US, queue->process->statement_timeout_us);
    if (config_leases(queue->config))
        most_us = lesser(most_us, queue->config->lease_us / LEASE_PART);
    *ret = statement_of(sql_rest_timeout);
    statement_add_text(ret, arena_printf(arena, "%" PRId64 "ms", most_us / MS_US));
    return true;
}

struct statement rest_question_begin(struct queue *queue, struct arena *arena)
{
    enum rest_question_kind kind = queue->side_requests.rest;
    queue->side_requests.rest = REST_ASKS_NOTHING;
    queue->rest_answer.asked = kind;
    queue->rest_answer.asked_number = queue->side_requests.rest_number;
    return kind == REST_ASKS_LOOK ? look_question(queue, arena)
                                  : writers_question(queue, kind == REST_ASKS_LEFT, arena);
}

static void keep_text(char *to, size_t size, struct span text)
{
    snprintf(to, size, "%.*s", (int)text.size, text.data ? text.data : "");
}

static void take_writers(struct queue *queue, const PGresult *res)
{
    struct rest_answer *answer = &queue->rest_answer;
    struct span writers = result_span(res, 0, WRITERS_LIST);
    answer->may = PQgetisnull(res, 0, WRITERS_OBSTACLE);
    keep_text(answer->obstacle, sizeof answer->obstacle, result_span(res, 0, WRITERS_OBSTACLE));
    answer->held = result_bool(res, 0, WRITERS_HELD);
    result_bigint(res, 0, WRITERS_FAMILY, &answer->family);
    free(answer->writers);
    answer->writers = writers.data ? memory_new(writers.size + 1) : NULL;
    if (writers.data)
        memcpy(answer->writers, writers.data, writers.size);
}

static void take_look(struct queue *queue, const PGresult *res)
{
    struct rest_answer *answer = &queue->rest_answer;
    answer->idle = result_bool(res, 0, LOOK_IDLE);
    answer->waiting = result_bool(res, 0, LOOK_WAITING);
    answer->due = result_bigint(res, 0, LOOK_DUE, &answer->due_us);
}

void rest_question_take(struct queue *queue, const PGresult *res)
{
    if (PQntuples(res) != 1)
        return;
    if (queue->rest_answer.asked == REST_ASKS_LOOK)
        take_look(queue, res);
    else
        take_writers(queue, res);
    queue->rest_answer.taken = true;
}

void rest_question_end(struct queue *queue, bool failed)
{
    struct rest_answer *answer = &queue->rest_answer;
    if (answer->asked == REST_ASKS_NOTHING)
        return;
    answer->failed = failed || !answer->taken;
    answer->number = answer->asked_number;
    answer->asked = REST_ASKS_NOTHING;
    answer->taken = false;
}

void rest_question_close(struct queue *queue)
{
    free(queue->rest_answer.writers);
}
