/* relay/side/rest_question.h -- what a queue asks the database before it rests (relay/rest/rest.h).
 *
 * The side connection asks, because it goes to the server that producers write to, and because its statements know the
 * table. A request is side_requests.rest; the answer, with the request's number, is in queue->rest_answer. */
#pragma once

#include "relay/base/statement.h"

#include <libpq-fe.h>

struct queue;

/* Goes ahead of it in its transaction, for a look at the whole table. False: nothing does. */
bool rest_question_timeout(const struct queue *queue, struct arena *arena, struct statement *ret);

/* The statement of the request under way, with parameters in `arena`; the request is taken back. */
struct statement rest_question_begin(struct queue *queue, struct arena *arena);
void rest_question_take(struct queue *queue, const PGresult *res);

/* Its round has ended; `failed`: or will have no answer. Nothing, where none was under way. */
void rest_question_end(struct queue *queue, bool failed);
void rest_question_close(struct queue *queue);
