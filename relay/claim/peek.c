#include "relay/claim/peek.h"

#include "relay/queue/pace.h"
#include "relay/queue/queue.h"

#define CLAIM_US SECOND_US /* the slow sweep goes on, though it has been everywhere */

bool peek_first(struct queue *queue, instant_us now)
{
    bool idle = now >= queue->pace.poll_at && !queue->pace.work_known && queue->keys.more.count == 0 &&
                queue->keys.busy_elsewhere.count == 0 && !queue->ordering->type->pending(queue->ordering, now) &&
                !queue->ordering->type->sweep_due(queue->ordering, now);
    if (!idle || now >= queue->pace.claim_by || !queue->side_status.connected) {
        queue->pace.claim_by = now + CLAIM_US;
        return false;
    }
    queue->side_requests.peek = true;
    pace_poll_at(&queue->pace, INSTANT_NEVER);
    pace_rest(queue, now);
    return true;
}
