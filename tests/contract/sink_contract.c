#include "tests/contract/sink_contract.h"

#include "relay/base/arena.h"

#include <stdlib.h>

#define SETUPS_MAX 16
#define PATIENCE_MS 120000
#define CLOSE_MAX_US (2 * SECOND_US) /* the contract says 1 s; the rest is for a busy test machine */

/* ---- the driver ---- */

/* One event with what the driver remembers about it: its delivery's `owner`. */
struct entry {
    struct event event;
    struct delivery delivery;
    const struct delivery *before; /* the event of the same key before it, or NULL */
    bool submitted;
};

struct contract *contract_open(const struct contract_setup *setup)
{
    struct error err = {0};
    struct contract *c = memory_new(sizeof *c);
    c->setup = setup;
    c->ps = pollset_new();
    c->arena = arena_new();
    c->sink = sink_open(setup->type, setup->name, setup->settings, &err);
    ck_assert_msg(c->sink != NULL, "%s does not open: %s", setup->name, err.text);
    return c;
}

static const struct delivery *find_before(const struct contract *c, struct span key)
{
    for (size_t i = c->count; key.data && i > 0; i--)
        if (c->ds[i - 1]->event->key.data && span_equal(c->ds[i - 1]->event->key, key))
            return c->ds[i - 1];
    return NULL;
}

struct delivery *contract_add(struct contract *c, const char *key, struct span payload)
{
    struct entry *entry = arena_alloc(c->arena, sizeof *entry);
    entry->event = (struct event){.id = (int64_t)c->count + 1,
                                  .key = arena_copy(c->arena, span_of(key)),
                                  .payload = arena_copy(c->arena, payload),
                                  .payload_kind = PAYLOAD_BYTES,
                                  .attempt = 1};
    entry->before = find_before(c, entry->event.key);
    entry->delivery = (struct delivery){.event = &entry->event,
                                        .destination = arena_copy(c->arena, span_of(c->setup->destination)),
                                        .arena = c->arena,
                                        .owner = entry};
    if (c->count == c->capacity) {
        c->capacity = c->capacity ? c->capacity * 2 : 64;
        c->ds = memory_resize(c->ds, c->capacity, sizeof(struct delivery *));
    }
    c->ds[c->count++] = &entry->delivery;
    return &entry->delivery;
}

struct event *contract_event(struct delivery *d)
{
    return &((struct entry *)d->owner)->event;
}

/* `last` is the one that goes just before it in the same call, or NULL. */
static bool may_go(const struct contract *c, struct entry *entry, const struct delivery *last)
{
    const struct delivery *before = entry->before;
    if (entry->submitted)
        return false;
    if (!before || before->verdict == VERDICT_ACKED) {
        entry->delivery.joined = false;
        return true;
    }
    bool run = c->sink->traits & SINK_TAKES_RUNS && entry->delivery.joined && before == last;
    bool ordered = c->sink->traits & SINK_KEEPS_KEY_ORDER || run;
    return ordered && before->verdict == VERDICT_NONE && ((struct entry *)before->owner)->submitted;
}

size_t contract_submit(struct contract *c)
{
    struct delivery **batch = memory_array(c->count + 1, sizeof(struct delivery *));
    size_t n = 0;
    for (size_t i = 0; i < c->count; i++) {
        struct entry *entry = c->ds[i]->owner;
        if (may_go(c, entry, n > 0 ? batch[n - 1] : NULL)) {
            batch[n++] = c->ds[i];
            entry->submitted = true; /* so that the next one of its key sees it */
        }
    }
    size_t before = c->sink->in_flight;
    size_t taken = n ? sink_submit(c->sink, batch, n, clock_now()) : 0;
    ck_assert_uint_le(taken, n);
    ck_assert_msg(c->sink->in_flight == before + taken, "submit() gave a verdict");
    for (size_t i = 0; i < n; i++) {
        ck_assert_msg(batch[i]->verdict == VERDICT_NONE, "submit() gave event %lld a verdict",
                      (long long)batch[i]->event->id);
        ck_assert((batch[i]->sink != NULL) == (i < taken));
        ((struct entry *)batch[i]->owner)->submitted = i < taken;
    }
    free(batch);
    return taken;
}

void contract_turn(struct contract *c, int64_t wait_ms)
{
    struct error err = {0};
    instant_us now = clock_now();
    pollset_clear(c->ps);
    sink_prepare(c->sink, c->ps);
    pollset_deadline(c->ps, now + wait_ms * MS_US);
    ck_assert_msg(pollset_wait(c->ps, now, &err), "%s", err.text);
    sink_progress(c->sink, c->ps, clock_now());
    for (struct delivery *d; (d = sink_take_resolved(c->sink));)
        ck_assert_int_ne(d->verdict, VERDICT_NONE);
    c->turns++;
}

bool contract_drain(struct contract *c, int64_t timeout_ms)
{
    instant_us deadline = clock_now() + timeout_ms * MS_US;
    while (c->sink->in_flight > 0) {
        if (clock_now() >= deadline)
            return false;
        contract_turn(c, 50);
    }
    return true;
}

void contract_add_run(struct contract *c, const char *key, int length)
{
    for (int i = 0; i < length; i++)
        contract_add(c, key, span_of("{\"a\":1}"))->joined = i > 0;
}

bool contract_run(struct contract *c, int64_t timeout_ms)
{
    instant_us deadline = clock_now() + timeout_ms * MS_US;
    for (;;) {
        size_t taken = contract_submit(c);
        if (taken == 0 && c->sink->in_flight == 0)
            return true;
        if (clock_now() >= deadline)
            return false;
        contract_turn(c, 50);
    }
}

enum reach contract_probe(struct contract *c, const char *destination, int64_t timeout_ms)
{
    instant_us deadline = clock_now() + timeout_ms * MS_US;
    enum reach reach;
    error_set(&c->unreached, ERROR_NONE, "no cause");
    while ((reach = sink_probe(c->sink, span_of(destination), clock_now(), &c->unreached)) == REACH_PENDING) {
        if (clock_now() >= deadline)
            break;
        contract_turn(c, 20);
    }
    ck_assert(reach != REACH_NO || (c->unreached.kind != ERROR_NONE && c->unreached.text[0]));
    return reach;
}

size_t contract_verdicts(const struct contract *c, enum verdict verdict)
{
    size_t count = 0;
    for (size_t i = 0; i < c->count; i++)
        count += c->ds[i]->verdict == verdict;
    return count;
}

int64_t contract_close_us(struct contract *c)
{
    instant_us before = clock_now();
    sink_close(c->sink);
    int64_t took_us = clock_now() - before;
    c->sink = NULL;
    for (size_t i = 0; i < c->count; i++) {
        const struct entry *entry = c->ds[i]->owner;
        ck_assert_msg(!entry->submitted || entry->delivery.verdict != VERDICT_NONE, "event %lld has no verdict",
                      (long long)entry->event.id);
    }
    return took_us;
}

void contract_end(struct contract *c)
{
    if (c->sink)
        contract_close_us(c);
    free(c->ds);
    pollset_free(c->ps);
    arena_free(c->arena);
    free(c);
}

/* ---- the sentences of the contract ---- */

static struct contract_setup *setups[SETUPS_MAX];
static int setup_count;

static struct contract *begin(int i)
{
    if (setups[i]->start)
        setups[i]->start(setups[i]);
    return contract_open(setups[i]);
}

static void end(int i, struct contract *c)
{
    contract_end(c);
    if (setups[i]->stop)
        setups[i]->stop(setups[i]);
}

static void add_many(struct contract *c, int keys, int of_each)
{
    for (int n = 0; n < of_each; n++)
        for (int k = 0; k < keys; k++)
            contract_add(c, arena_printf(c->arena, "key-%d", k), span_of("{\"a\":1}"));
}

static void all_acked(const struct contract *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct delivery *d = c->ds[i];
        ck_assert_msg(d->verdict == VERDICT_ACKED, "event %lld: %s, %s", (long long)d->event->id,
                      verdict_name(d->verdict), d->cause ? d->cause->text : "no cause");
        ck_assert_ptr_null(d->cause);
    }
}

START_TEST(every_delivery_gets_one_verdict)
{
    struct contract *c = begin(_i);
    add_many(c, 50, 4);
    ck_assert(contract_run(c, PATIENCE_MS));
    all_acked(c);
    ck_assert_uint_eq(c->sink->in_flight, 0);
    end(_i, c);
}
END_TEST

START_TEST(more_than_fit_are_taken_in_order_and_all_arrive)
{
    struct contract *c = begin(_i);
    add_many(c, setups[_i]->many ? setups[_i]->many : 3000, 1);
    ck_assert(contract_run(c, PATIENCE_MS));
    all_acked(c);
    end(_i, c);
}
END_TEST

START_TEST(any_bytes_are_a_payload)
{
    struct contract *c = begin(_i);
    char every[256];
    for (int i = 0; i < 256; i++)
        every[i] = (char)i;
    contract_add(c, "all bytes", (struct span){every, sizeof every});
    contract_add(c, "empty", span_of(""));
    contract_add(c, "absent", (struct span){0});
    contract_add(c, NULL, span_of("no key"));
    contract_add(c, NULL, span_of("no key either"));
    ck_assert(contract_run(c, PATIENCE_MS));
    all_acked(c);
    end(_i, c);
}
END_TEST

/* A destination whose keys are header lines may refuse some, but none may hang, be cut or disturb its neighbours. */
START_TEST(hostile_keys_are_sent_or_rejected)
{
    struct contract *c = begin(_i);
    contract_add(c, "", span_of("empty key"));
    contract_add(c, "sp ace\r\nX-Evil: 1\r\n\r\n\t\"\\{}\xc3\xa9\x01", span_of("hostile key"));
    contract_add(c, "invalid utf-8 \xff\xfe", span_of("hostile key"));
    struct delivery *good = contract_add(c, "good", span_of("good key"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(good->verdict, VERDICT_ACKED);
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED) + contract_verdicts(c, VERDICT_REJECTED), c->count);
    end(_i, c);
}
END_TEST

START_TEST(optional_fields_are_sent)
{
    struct contract *c = begin(_i);
    struct delivery *d = contract_add(c, "key", span_of("{}"));
    struct event *event = contract_event(d);
    event->event_id = span_of("0b9a2c60-6a4e-4d4e-9c0c-0d4a3c1f2b11");
    event->type = span_of("created");
    event->headers = span_of("{\"tenant\":\"a\",\"n\":12,\"deep\":{\"x\":[1,null]}}");
    event->traceparent = span_of("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    event->created_at_us = INT64_C(1767225600000000);
    event->payload_kind = PAYLOAD_JSON;
    ck_assert(contract_run(c, PATIENCE_MS));
    all_acked(c);
    end(_i, c);
}
END_TEST

START_TEST(idle_sink_sleeps)
{
    struct contract *c = begin(_i);
    add_many(c, 5, 1);
    ck_assert(contract_run(c, PATIENCE_MS));
    size_t before = c->turns;
    for (instant_us until = clock_now() + 300 * MS_US; clock_now() < until;)
        contract_turn(c, 300);
    ck_assert_msg(c->turns - before <= 20, "%zu turns in 0.3 s with nothing to do", c->turns - before);
    end(_i, c);
}
END_TEST

START_TEST(close_gives_every_delivery_a_verdict)
{
    struct contract *c = begin(_i);
    add_many(c, 50, 2);
    contract_submit(c);
    int64_t took_us = contract_close_us(c);
    ck_assert_msg(took_us <= CLOSE_MAX_US, "close took %lld ms", (long long)(took_us / MS_US));
    for (size_t i = 0; i < c->count; i++)
        ck_assert_int_ne(c->ds[i]->verdict, VERDICT_REJECTED);
    end(_i, c);
}
END_TEST

START_TEST(close_without_any_delivery_is_quick)
{
    struct contract *c = begin(_i);
    ck_assert_int_le(contract_close_us(c), CLOSE_MAX_US);
    end(_i, c);
}
END_TEST

START_TEST(close_gives_up_what_was_never_answered_as_unknown)
{
    if (!setups[_i]->deaf_destination)
        return;
    struct contract *c = begin(_i);
    for (int i = 0; i < 3; i++) {
        struct delivery *d = contract_add(c, NULL, span_of("{}"));
        d->destination = span_of(setups[_i]->deaf_destination);
    }
    ck_assert_uint_gt(contract_submit(c), 0);
    for (int i = 0; i < 20; i++)
        contract_turn(c, 10);
    size_t waiting = c->sink->in_flight;
    ck_assert_uint_gt(waiting, 0);
    ck_assert_int_le(contract_close_us(c), CLOSE_MAX_US);
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_UNKNOWN), waiting);
    end(_i, c);
}
END_TEST

START_TEST(failure_fails_the_later_ones_of_its_key_in_flight)
{
    struct contract *c = begin(_i);
    if (setups[_i]->poison && (c->sink->traits & SINK_KEEPS_KEY_ORDER)) {
        add_many(c, 1, 1);
        contract_add(c, "key-0", span_of(setups[_i]->poison));
        add_many(c, 1, 5);
        ck_assert(contract_run(c, PATIENCE_MS));
        ck_assert_int_eq(c->ds[0]->verdict, VERDICT_ACKED);
        for (size_t i = 1; i < c->count; i++)
            ck_assert_int_ne(c->ds[i]->verdict, VERDICT_ACKED);
    }
    end(_i, c);
}
END_TEST

START_TEST(runs_arrive_as_a_whole)
{
    struct contract *c = begin(_i);
    if (c->sink->traits & SINK_TAKES_RUNS) {
        contract_add_run(c, "key-0", (int)c->sink->type->run.events_max);
        contract_add_run(c, "key-1", 2);
        add_many(c, 2, 1);
        contract_add_run(c, "key-2", 3);
        ck_assert(contract_run(c, PATIENCE_MS));
        all_acked(c);
    }
    end(_i, c);
}
END_TEST

TCase *contract_tcase(struct contract_setup *setup)
{
    if (setup_count == SETUPS_MAX)
        abort();
    int i = setup_count++;
    setups[i] = setup;
    TCase *tcase = tcase_create(setup->name);
    tcase_set_timeout(tcase, 2 * PATIENCE_MS / 1000.0);
    tcase_add_loop_test(tcase, every_delivery_gets_one_verdict, i, i + 1);
    tcase_add_loop_test(tcase, more_than_fit_are_taken_in_order_and_all_arrive, i, i + 1);
    tcase_add_loop_test(tcase, any_bytes_are_a_payload, i, i + 1);
    tcase_add_loop_test(tcase, hostile_keys_are_sent_or_rejected, i, i + 1);
    tcase_add_loop_test(tcase, optional_fields_are_sent, i, i + 1);
    tcase_add_loop_test(tcase, idle_sink_sleeps, i, i + 1);
    tcase_add_loop_test(tcase, close_gives_every_delivery_a_verdict, i, i + 1);
    tcase_add_loop_test(tcase, close_without_any_delivery_is_quick, i, i + 1);
    tcase_add_loop_test(tcase, close_gives_up_what_was_never_answered_as_unknown, i, i + 1);
    tcase_add_loop_test(tcase, failure_fails_the_later_ones_of_its_key_in_flight, i, i + 1);
    tcase_add_loop_test(tcase, runs_arrive_as_a_whole, i, i + 1);
    return tcase;
}
