/* DESIGN. Each producer has one event under way, in a transaction of its own, and keys of its own: ids of one key are
 * committed in order. An event that is due while all are busy waits here, and is not yet sent: what the producers
 * cannot do is not the relay's latency, and shows in the rate. */
#include "relay/bench/bench_load.h"

#include "relay/base/arena.h"
#include "relay/postgres/db.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PRODUCERS 8

struct load_producer {
    struct db *db;
    instant_us sent_at;
};

struct bench_load *bench_load_new(struct bench *bench)
{
    struct bench_load *load = memory_new(sizeof *load);
    load->bench = bench;
    load->producers = memory_array(PRODUCERS, sizeof *load->producers);
    for (size_t i = 0; i < PRODUCERS; i++)
        load->producers[i].db = bench_connect(bench);
    load->sql = bench_render(sql_bench_insert, bench->schema);
    return load;
}

void bench_load_free(struct bench_load *load)
{
    for (size_t i = 0; i < PRODUCERS; i++)
        db_free(load->producers[i].db);
    free(load->producers);
    free(load->sql);
    free(load);
}

bool bench_load_is_connected(const struct bench_load *load)
{
    return load->up == PRODUCERS;
}

void bench_load_begin(struct bench_load *load, instant_us now)
{
    load->begun_at = now;
    load->wall_ahead_us = clock_wall_us() - clock_now();
}

bool bench_load_is_over(const struct bench_load *load, instant_us now)
{
    const struct bench_options *options = &load->bench->options;
    bool all_sent =
        load->sent == options->rate * options->seconds || now >= load->begun_at + options->seconds * SECOND_US;
    return load->begun_at > 0 && all_sent && load->inserted == load->sent;
}

/* When event number `n` is due. */
static instant_us due_at(const struct bench_load *load, int64_t n)
{
    return load->begun_at + n * SECOND_US / load->bench->options.rate;
}

/* Exactly so many bytes of JSON as jsonb prints it, like those of sql/bench/bench_fill.sql. */
static char *payload(struct bench *bench, struct arena *arena, int64_t n)
{
    static const char digits[] = "0123456789abcdef";
    size_t size = (size_t)bench->options.payload_bytes;
    char *text = arena_alloc(arena, size + 1);
    size_t used = (size_t)snprintf(text, size + 1, "{\"n\": %" PRId64 ", \"bench\": \"", n);
    for (uint64_t bits = 0; used < size - 2; bits >>= 4) {
        if (bits == 0)
            bits = rng_next(&bench->rng);
        text[used++] = digits[bits & 15];
    }
    text[used++] = '"';
    text[used] = '}';
    return text;
}

static bool send_event(struct bench_load *load, size_t index, instant_us now, struct error *err)
{
    struct load_producer *producer = &load->producers[index];
    struct arena *arena = arena_new();
    struct statement st = statement_of(load->sql);
    int64_t keys = load->bench->options.keys / PRODUCERS + 1;
    statement_add_text(&st, arena_printf(arena, "bench-%zu-%" PRId64, index, load->sent % keys));
    statement_add_text(&st, payload(load->bench, arena, load->sent));
    statement_add_int(&st, arena, now + load->wall_ahead_us); /* the instant that insert_us counts from */
    bool ok = db_send(producer->db, &st, err) && db_end_round(producer->db, err);
    arena_free(arena);
    producer->sent_at = now;
    load->sent++;
    return ok;
}

static bool take_result(PGresult *res, struct error *err)
{
    bool ok = PQresultStatus(res) == PGRES_COMMAND_OK;
    if (!ok)
        db_result_rule(res, err);
    PQclear(res);
    return ok || error_prefix(err, "bench: an insert");
}

static bool progress(struct bench_load *load, struct load_producer *producer, const struct pollset *ps, instant_us now,
                     struct error *err)
{
    struct db_result result;
    bool ok = true;
    while (ok) {
        switch (db_progress(producer->db, ps, now, &result, err)) {
        case DB_NOTHING:
            return true;
        case DB_UP:
            load->up++;
            break;
        case DB_RESULT:
            ok = take_result(result.res, err);
            break;
        case DB_ROUND_END:
            histogram_add(&load->insert_us, now - producer->sent_at);
            load->inserted++;
            load->ended_at = now;
            break;
        case DB_DOWN:
            return error_prefix(err, "bench: an insert");
        }
    }
    return false;
}

/* When the next one is due: INSTANT_NEVER before the load begins and after its time. */
static instant_us next_at(const struct bench_load *load)
{
    const struct bench_options *options = &load->bench->options;
    if (load->begun_at == 0 || load->sent == options->rate * options->seconds)
        return INSTANT_NEVER;
    return due_at(load, load->sent);
}

static bool is_due(const struct bench_load *load, instant_us now)
{
    return now >= next_at(load) && now < load->begun_at + load->bench->options.seconds * SECOND_US;
}

bool bench_load_turn(struct bench_load *load, const struct pollset *ps, instant_us now, struct error *err)
{
    bool ok = true;
    for (size_t i = 0; ok && i < PRODUCERS; i++) {
        ok = progress(load, &load->producers[i], ps, now, err);
        if (ok && is_due(load, now) && db_is_idle(load->producers[i].db))
            ok = send_event(load, i, now, err);
    }
    return ok;
}

void bench_load_prepare(struct bench_load *load, struct pollset *ps, instant_us now)
{
    bool idle = false;
    for (size_t i = 0; i < PRODUCERS; i++) {
        db_prepare(load->producers[i].db, ps);
        idle = idle || db_is_idle(load->producers[i].db);
    }
    if (idle)
        pollset_deadline(ps, instant_min(now + SECOND_US, next_at(load)));
}
