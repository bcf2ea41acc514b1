#include "relay/deliver/next_payload.h"

#include "relay/base/json_check.h"
#include "relay/base/utf8.h"

static bool fits(const struct table *next, const struct response *response, struct error *err)
{
    struct span text = response_span(response);
    if (response->cut)
        return error_set(err, ERROR_REFUSED, "longer than max_response, which is %zu bytes", response->max);
    if (text.size == 0 || next->payload_kind == PAYLOAD_BYTES)
        return true;
    if (next->payload_kind == PAYLOAD_JSON)
        return json_check(text, next->payload_is_jsonb, err);
    if (memchr(text.data, '\0', text.size))
        return error_set(err, ERROR_REFUSED, "a text with a NUL byte");
    return utf8_valid(text) || error_set(err, ERROR_REFUSED, "not UTF-8");
}

void next_payload_judge(const struct table *next, struct delivery *d)
{
    struct error err;
    if (d->verdict != VERDICT_ACKED || fits(next, d->response, &err))
        return;
    d->verdict = VERDICT_UNKNOWN;
    d->cause = arena_alloc(d->arena, sizeof *d->cause);
    error_set(d->cause, ERROR_REFUSED, "the answer cannot be the payload of %s: %s", next->plain_name, err.text);
}
