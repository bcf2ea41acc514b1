#include "relay/deliver/verdict_rule.h"

#include <assert.h>

enum blame verdict_blame(const struct delivery *d, bool repeated)
{
    if (d->verdict == VERDICT_REJECTED || !d->cause)
        return BLAME_EVENT;
    switch (d->cause->kind) {
    case ERROR_BYSTANDER:
    case ERROR_LOST_CLAIM:
        return BLAME_NOBODY;
    case ERROR_ROUTE:
        return BLAME_DESTINATION;
    case ERROR_UNREACHABLE:
        return d->verdict == VERDICT_UNKNOWN && repeated ? BLAME_EVENT : BLAME_DESTINATION;
    case ERROR_OVERLOADED:
    case ERROR_TIMEOUT:
        return repeated ? BLAME_EVENT : BLAME_DESTINATION;
    default:
        return BLAME_EVENT;
    }
}

#define ANY (-1)

static const struct rule {
    int verdict, blame, last_attempt, policy;
    enum lane_outcome outcome;
    const char *why;
} rules[] = {
    /* clang-format off */
    {VERDICT_REJECTED, ANY,               ANY,   ON_EXHAUSTED_DEAD_LETTER, LANE_DEAD,     "can never succeed"},
    {VERDICT_REJECTED, ANY,               ANY,   ON_EXHAUSTED_PARK,        LANE_CLOSED,   "can never succeed"},
    {ANY,              BLAME_DESTINATION, ANY,   ANY,                      LANE_RELEASED, "not the event's fault"},
    {ANY,              BLAME_NOBODY,      ANY,   ANY,                      LANE_RELEASED, "at once: nothing was wrong with it"},
    {ANY,              BLAME_EVENT,       false, ANY,                      LANE_RETRY,    "may succeed; a duplicate beats a loss"},
    {ANY,              BLAME_EVENT,       true,  ON_EXHAUSTED_DEAD_LETTER, LANE_DEAD,     "attempts exhausted"},
    {ANY,              BLAME_EVENT,       true,  ON_EXHAUSTED_PARK,        LANE_CLOSED,   "attempts exhausted"},
    /* clang-format on */
};

static bool matches(int wanted, int value)
{
    return wanted == ANY || wanted == value;
}

enum lane_outcome verdict_rule(enum verdict verdict, enum blame blame, bool last_attempt, enum on_exhausted policy)
{
    assert(verdict != VERDICT_NONE && verdict != VERDICT_ACKED);
    const struct rule *rule = rules, *last = rules + sizeof rules / sizeof rules[0] - 1;
    while (rule < last && !(matches(rule->verdict, (int)verdict) && matches(rule->blame, (int)blame) &&
                            matches(rule->last_attempt, last_attempt) && matches(rule->policy, (int)policy)))
        rule++;
    return rule->outcome; /* the last one's, where no other matches */
}

/* A dead letter would have to leave the table, too, so there is nothing but waiting. */
void verdict_rule_stuck(struct lane *lane, const struct queue_config *config, struct rng *rng)
{
    struct backoff backoff = {config->retry_base_us, config->retry_max_us};
    unsigned attempt = lane->refused->event.attempt;
    bool last = attempt >= config->retry_attempts;
    lane->failed = lane->refused;
    lane->outcome = last ? LANE_CLOSED : LANE_RETRY;
    lane->delay_us = last ? 0 : backoff_delay_us(&backoff, attempt, rng);
}
