#include "relay/deliver/suspect.h"

#include <inttypes.h>
#include <stdio.h>

#define STRIKES 3
#define REMEMBER_US (3600 * SECOND_US)

bool suspect_fails_again(struct keyset *suspects, const struct item *item, instant_us taken_sent_at, instant_us now)
{
    char text[64];
    snprintf(text, sizeof text, "%p %" PRId64, (void *)lane_queue(item->lane), item->event.id);
    struct span name = span_of(text);
    uint64_t hash = span_hash(name);
    keyset_expire(suspects, now - REMEMBER_US);
    const struct keyset_entry *known = keyset_find(suspects, name, hash);
    bool others_taken = known && taken_sent_at > known->at;
    if (!keyset_put(suspects, name, hash, now, NULL))
        return false;
    struct keyset_entry *entry = keyset_find(suspects, name, hash);
    entry->count += others_taken;
    return others_taken && (taken_sent_at > item->submitted_at || entry->count >= STRIKES);
}
