#include "relay/queue_open.h"

#include "relay/claim/claim.h"
#include "relay/claim/claim_request.h"
#include "relay/deliver/outlet.h"
#include "relay/deliver/ready.h"
#include "relay/queue/key_book.h"
#include "relay/queue/order_watch.h"
#include "relay/queue/pace.h"
#include "relay/queue/report.h"
#include "relay/route/destination.h"
#include "relay/route/route.h"
#include "relay/side/side.h"
#include "relay/side/unreadable.h"
#include "relay/table/table.h"
#include "relay/table/table_ordering.h"
#include "relay/table/table_sql.h"
#include "sql_text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HOST_BYTES_MAX 256
#define KEYS_WITH_MORE_MAX 4096
#define KEYS_DOWN_MAX 512

static bool open_table(struct queue *queue, PGconn *conn, struct error *err)
{
    queue->table = table_inspect(conn, queue->config, err);
    if (!queue->table)
        return false;
    queue->sql.names = arena_new();
    queue->sql.variables = table_variables(queue->table, queue->config, queue->sql.names);
    const struct sql_variable *v = queue->sql.variables,
                              *guarded = table_guarded_variables(queue->table, queue->config, queue->sql.names);
    queue->route = route_new(queue->config->destination, (const char *const *)queue->table->extra_names,
                             queue->table->extra_count, err);
    queue->sql.purge = sql_render(sql_dead_purge, queue->sql.variables, err);
    bool passes = table_passes_delayed(queue->table, queue->config);
    bool after = table_comes_after(queue->table);
    queue->sql.rest_look = sql_render(sql_rest_look, queue->sql.variables, err);
    return queue->sql.purge && queue->sql.rest_look && queue->route &&
           guarded_text_init(&queue->sql.empty, sql_queue_empty, v, guarded, err) &&
           (!passes || guarded_text_init(&queue->sql.due, sql_delayed_due, v, guarded, err)) &&
           (!after || guarded_text_init(&queue->sql.after, sql_after_look, v, guarded, err)) &&
           unreadable_open(queue, err);
}

static bool open_ordering(struct queue *queue, struct error *err)
{
    const struct queue_config *config = queue->config;
    const struct ordering_type *type = ordering_type_find(config->ordering);
    assert(type && "config_tables.c names those that there are");
    struct ordering_options options = table_ordering_options(queue->table, config, queue->sql.variables);
    options.lease_us = queue->leases.used ? config->lease_us : 0;
    options.lease_owner = queue->leases.owner;
    options.guarded = table_guarded_variables(queue->table, config, queue->sql.names);
    queue->ordering = type->open(&options, err);
    return queue->ordering != NULL;
}

/* In a container, the host is the pod. */
static char *owner_name(void)
{
    char host[HOST_BYTES_MAX] = "";
    gethostname(host, sizeof host - 1);
    char *name = memory_new(sizeof host + 16);
    snprintf(name, sizeof host + 16, "%s:%d", host, (int)getpid());
    return name;
}

static void open_connections(struct queue *queue)
{
    side_open(queue);
    queue->claim_count = (size_t)queue->config->connections;
    queue->claims = memory_array(queue->claim_count, sizeof *queue->claims);
    holds_init(&queue->holds, queue->claim_count);
    queue->claiming.offered = memory_array(queue->claim_count, sizeof *queue->claiming.offered);
    for (size_t i = 0; i < queue->claim_count; i++) {
        claim_open(queue, &queue->claims[i], i);
        queue->holds.claimed[i] = &queue->claims[i].batches;
    }
}

struct queue *queue_open(const struct queue_options *options, PGconn *conn, struct error *err)
{
    const struct queue_config *config = options->config;
    struct queue *queue = memory_new(sizeof *queue);
    queue->config = config;
    queue->process = options->process;
    queue->outlet = options->outlet;
    queue->log = options->log;
    queue->rng.state = options->seed;
    queue->pace.idle_us = config->latency_us;
    queue->claiming.asking_since = INSTANT_NEVER;
    queue->claiming.key_limit = config->keys_per_claim;
    queue->watch = order_watch_new();
    queue->leases.used = config_leases(config);
    queue->leases.owner = queue->leases.used ? owner_name() : NULL;
    key_book_init(&queue->keys, KEYS_WITH_MORE_MAX, KEYS_DOWN_MAX);
    if (!open_table(queue, conn, err) || !open_ordering(queue, err)) {
        queue_close(queue);
        return NULL;
    }
    open_connections(queue);
    return queue;
}

void queue_close(struct queue *queue)
{
    if (!queue)
        return;
    side_close(queue);
    for (size_t i = 0; i < queue->claim_count; i++)
        claim_close(&queue->claims[i]);
    holds_done(&queue->holds);
    free(queue->claims);
    free(queue->claiming.offered);
    if (queue->ordering)
        queue->ordering->type->close(queue->ordering);
    route_free(queue->route);
    guarded_text_done(&queue->sql.empty);
    guarded_text_done(&queue->sql.due);
    guarded_text_done(&queue->sql.after);
    free(queue->sql.purge);
    free(queue->sql.rest_look);
    unreadable_close(queue);
    free(queue->leases.owner);
    arena_free(queue->sql.names);
    table_free(queue->table);
    order_watch_free(queue->watch);
    key_book_done(&queue->keys);
    free(queue);
}

void queue_hand_on(struct queue *queue, instant_us now)
{
    if (queue->wakeups.next_queue && queue->next)
        pace_wake(queue->next, now);
    queue->wakeups.next_queue = false;
}
