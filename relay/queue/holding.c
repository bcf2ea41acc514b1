#include "relay/queue/holding.h"

#include "relay/postgres/db.h"
#include "relay/queue/queue.h"

#include <stddef.h>

/* Behind a pooler, where the session is not ours. */
static const struct holding open_transaction = {
    .waits_for_blocked_rows = true,
    .settles_beside_open_transaction = true,
    .extends_open_transaction = true,
};

static const struct holding session_lock = {
    .outlives_transaction = true,
    .waits_for_blocked_rows = true,
    .claims_beside_stragglers = true,
    .survives_rollback = true,
};

/* The claim's transaction lasts until every lane is settled, and settles them itself. */
static const struct holding row_lock = {0};

static const struct holding lease = {
    .outlives_transaction = true,
    .waits_for_blocked_rows = true,
    .commits_before_delivery = true,
    .claims_by_room = true,
    .has_tokens = true,
    .may_expire = true,
    .belongs_to_side_connection = true,
};

#define PROPERTY(name) #name, offsetof(struct holding, name)

static const struct property {
    const char *name;
    size_t offset;
    const char *meaning;
} properties[] = {
    {PROPERTY(outlives_transaction), "the claim's transaction may end while a delivery is under way"},
    {PROPERTY(waits_for_blocked_rows), "the claim is not finished while another session has locked a row of it"},
    {PROPERTY(settles_beside_open_transaction),
     "the claim's transaction writes nothing while it waits; the side connection settles what is finished"},
    {PROPERTY(extends_open_transaction), "more keys are claimed into a transaction that waits for a delivery"},
    {PROPERTY(claims_beside_stragglers), "the connection goes on with its next claim while a delivery is under way"},
    {PROPERTY(survives_rollback), "a lock that was taken in a failed round is still there after the rollback"},
    {PROPERTY(commits_before_delivery),
     "the claim writes down that it has the keys, and commits before anything is sent"},
    {PROPERTY(claims_by_room), "one claim at a time, for no more keys than the sink has places for"},
    {PROPERTY(has_tokens), "a settlement proves by each lane's token that the key is still held"},
    {PROPERTY(may_expire), "the hold ends when its term is over, and that counts as a failed attempt"},
    {PROPERTY(belongs_to_side_connection),
     "the side connection renews the hold; if that connection is lost, the hold ends"},
};

#define PROPERTIES (sizeof properties / sizeof properties[0])

_Static_assert(PROPERTIES * sizeof(bool) == sizeof(struct holding), "each property has its row");

static const char *mark(const struct holding *holding, const struct property *property)
{
    return *(const bool *)((const char *)holding + property->offset) ? "yes" : "-";
}

const struct holding *holding_of_queue(const struct queue *queue)
{
    if (queue->leases.used)
        return &lease;
    return queue->ordering->locks_rows ? &row_lock : &session_lock;
}

const struct holding *holding_of_claim(const struct queue *queue, const struct db *db)
{
    const struct holding *holding = holding_of_queue(queue);
    return holding == &session_lock && db_is_shared(db) ? &open_transaction : holding;
}

void holding_print(FILE *out)
{
    fprintf(out,
            "| property | open transaction | session lock | row lock | lease | meaning |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < PROPERTIES; i++)
        fprintf(out, "| `%s` | %s | %s | %s | %s | %s |\n", properties[i].name, mark(&open_transaction, &properties[i]),
                mark(&session_lock, &properties[i]), mark(&row_lock, &properties[i]), mark(&lease, &properties[i]),
                properties[i].meaning);
}
