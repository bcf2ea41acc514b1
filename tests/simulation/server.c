#include "tests/simulation/server.h"

#include "relay/postgres/sqlstate.h"
#include "tests/simulation/failure.h"

#include "tests/simulation/connection.h"
#include "tests/simulation/judge.h"
#include "tests/simulation/result.h"
#include "tests/simulation/world.h"

#include <assert.h>

#define LOCK_TIMEOUT_US (5 * SECOND_US)
#define VACUUM_WAITS 1024

static struct {
    struct backend backends[BACKENDS_MAX];
    int count, pids;
    struct backend *next; /* that has something to do */
    instant_us down_until;
} server;

static const char *const query_names[] = {
    "begin",      "commit",      "rollback",   "savepoint", "undo",        "release",     "sync",        "eof",
    "nothing",    "search",      "listen",     "wake_lock", "wake_unlock", "writers",     "last_look",   "lock_newest",
    "lock_first", "lock_oldest", "lock_named", "lock_due",  "lock_fresh",  "lock_latest", "lock_urgent", "lock_top",
    "lock_below", "lock_lowest", "read",       "read_few",  "read_fresh",  "read_events", "keep",        "free",
    "done",       "bury",        "kept",       "park",      "unpark",      "drawn",       "seen",        "holders",
    "movers",     "floor",       "peek",       "empty",     "paused",      "grant",       "renew",       "leases",
    "move",       "give_back",   "ownerless",  "due",       "upkeep"};
_Static_assert(sizeof query_names / sizeof *query_names == QUERY_UPKEEP + 1, "each has a name");

/* What a statement may fail with; FATAL ones end the session as well. */
void server_clear(void)
{
    server.count = server.pids = 0;
    server.down_until = 0;
}

struct backend *server_backend(int backend)
{
    return &server.backends[backend];
}

bool server_has_backend(int pid)
{
    for (int i = 0; i < server.count; i++)
        if (server.backends[i].alive && server.backends[i].pid == pid)
            return true;
    return false;
}

int server_backend_of(int txn)
{
    for (int i = 0; i < server.count; i++)
        if (server.backends[i].alive && server.backends[i].txn == txn)
            return i;
    return -1;
}

static int free_backend(void)
{
    for (int i = 0; i < server.count; i++)
        if (!server.backends[i].alive)
            return i;
    assert(server.count < BACKENDS_MAX);
    return server.count++;
}

int server_connect(struct db *client, int process)
{
    if (sim.now < server.down_until)
        return -1;
    int index = free_backend();
    struct backend *backend = &server.backends[index];
    *backend = (struct backend){.alive = true,
                                .pid = ++server.pids,
                                .alone = QUERY_NO_ID,
                                .client = client,
                                .process = process,
                                .txn = TXN_NONE,
                                .waits_for = TXN_NONE,
                                .calls_end = &backend->calls,
                                .next_at = INSTANT_NEVER,
                                .cut_at = INSTANT_NEVER};
    return index;
}

static int index_of(const struct backend *backend)
{
    return (int)(backend - server.backends);
}

/* Messages to the client keep their order. */
static instant_us arrival(struct backend *backend)
{
    instant_us at = sim.now + sim_draw(20, 200);
    backend->said_at = at > backend->said_at ? at : backend->said_at;
    return backend->said_at;
}

static void say(struct backend *backend, enum message_kind kind, PGresult *res, size_t index)
{
    if (!backend->client || sim.now >= backend->cut_at) {
        PQclear(res);
        return;
    }
    connection_receive(backend->client, kind, arrival(backend), res, index);
}

void server_reply(struct backend *backend, PGresult *res)
{
    say(backend, MESSAGE_RESULT, res, backend->calls->index);
}

/* ---- transactions ---- */

static void forget_locks(struct backend *backend, bool session)
{
    judge_locks_lost(index_of(backend), backend->process, session);
    if (session)
        store_unlock_all(&sim.store, index_of(backend));
    else
        store_unlock_transaction(&sim.store, index_of(backend));
}

static void abort_txn(struct backend *backend)
{
    if (backend->txn == TXN_NONE)
        return;
    if (backend->releasing) {
        store_unlock_transaction(&sim.store, index_of(backend)); /* it has committed */
    } else {
        judge_rows_lost(index_of(backend), backend->process, backend->txn);
        store_abort(&sim.store, backend->txn);
    }
    backend->releasing = backend->writes_parked = backend->movers_known = backend->notifies = false;
    backend->txn = TXN_NONE;
    forget_locks(backend, false);
}

/* `told_at`: when the client hears of it, unless it knows already. */
static void end_backend(struct backend *backend, instant_us told_at)
{
    TRACE("backend %d ends", index_of(backend));
    abort_txn(backend);
    forget_locks(backend, true);
    bool cut = sim.now >= backend->cut_at;
    if (backend->client && !cut)
        connection_receive(backend->client, MESSAGE_EOF, told_at, NULL, 0);
    judge_client_told(index_of(backend), !backend->client ? sim.now : cut ? backend->heard_at : told_at);
    if (backend->client)
        connection_detach(backend->client);
    backend->alive = false;
    backend->client = NULL;
    backend->next_at = INSTANT_NEVER;
}

void server_restart(int64_t down_us)
{
    server.down_until = sim.now + down_us;
    for (int i = 0; i < server.count; i++)
        if (server.backends[i].alive)
            end_backend(&server.backends[i], sim.now + sim_draw(20, 3000));
}

void server_terminate(bool listening)
{
    int first = (int)sim_draw(0, server.count > 0 ? server.count - 1 : 0);
    for (int i = 0; i < server.count; i++) {
        struct backend *backend = &server.backends[(first + i) % server.count];
        if (backend->alive && (!listening || backend->listening)) {
            end_backend(backend, sim.now + sim_draw(20, 200 * MS_US));
            return;
        }
    }
}

void server_notify(bool queue)
{
    for (int i = 0; i < server.count; i++)
        if (server.backends[i].alive && server.backends[i].listening)
            say(&server.backends[i], MESSAGE_NOTIFY, NULL, queue);
}

static void notify_of(struct backend *backend)
{
    if (backend->notifies)
        server_notify(true);
    backend->notifies = false;
}

/* ---- calls ---- */

static void plan_next(struct backend *backend)
{
    backend->next_at = backend->calls ? backend->calls->at > sim.now ? backend->calls->at : sim.now : INSTANT_NEVER;
}

/* The wire breaks: the two sides find out at different times, or the client at once and the server much later. */
static void cut(struct backend *backend)
{
    TRACE("backend %d: connection cut", index_of(backend));
    backend->cut_at = sim.now;
    backend->heard_at = sim.now + (sim_chance(700) ? sim_draw(10, 5000) : sim_draw(5000, 800 * MS_US));
    instant_us gone_at = sim.now + (sim_chance(700) ? sim_draw(10, 5000) : sim_draw(5000, 800 * MS_US));
    connection_receive(backend->client, MESSAGE_EOF, backend->heard_at, NULL, 0);
    struct call *eof = arena_alloc(sim.arena, sizeof *eof);
    eof->query = QUERY_EOF;
    eof->at = gone_at;
    *backend->calls_end = eof;
    backend->calls_end = &eof->next;
}

void server_send(int index, struct call *call)
{
    struct backend *backend = &server.backends[index];
    if (!backend->alive || sim.now >= backend->cut_at)
        return;
    call->at = sim.now + sim_draw(20, 200);
    call->next = NULL;
    *backend->calls_end = call;
    backend->calls_end = &call->next;
    if (!backend->running && backend->calls == call)
        plan_next(backend);
    if (call->query != QUERY_EOF && sim_fails(sim.plan.rates.connection_cut))
        cut(backend);
}

void server_hang_up(int index)
{
    struct backend *backend = &server.backends[index];
    backend->client = NULL;
    struct call *eof = arena_alloc(sim.arena, sizeof *eof);
    eof->query = QUERY_EOF;
    eof->at = sim.now + (sim_fails(200) ? sim_draw(1000, 800 * MS_US) : sim_draw(20, 1000));
    *backend->calls_end = eof;
    backend->calls_end = &eof->next;
    if (!backend->running && backend->calls == eof)
        plan_next(backend);
}

static void finish_call(struct backend *backend)
{
    backend->running = false;
    backend->waits_for = TXN_NONE;
    backend->calls = backend->calls->next;
    if (!backend->calls)
        backend->calls_end = &backend->calls;
    plan_next(backend);
}

/* What somebody holds is not settled with the others. Where they and the rows' locks are one transaction, its lock is
 * gone with them; it may be delivered again, and that is no failure of its own. */
static void excuse_lost_lock(struct backend *backend, const char *sqlstate)
{
    const struct call *call = backend->calls;
    const struct list *ids = &call->lists[call->query == QUERY_BURY];
    if (call->query == QUERY_DONE || call->query == QUERY_BURY || call->query == QUERY_KEPT)
        backend->alone = ids->count == 1 ? ids->values[0] : QUERY_NO_ID;
    if (sim.plan.lock_rows && sqlstate_rule(sqlstate)->refusal >= REFUSAL_BY_LOCK && backend->alone != QUERY_NO_ID)
        judge_refused(store_find_row(&sim.store, backend->alone), false);
}

static void fail(struct backend *backend, const char *sqlstate)
{
    excuse_lost_lock(backend, sqlstate);
    TRACE("backend %d: %s fails with %s", index_of(backend), query_names[backend->calls->query], sqlstate);
    sim.totals.faults++;
    server_reply(backend, result_error(sqlstate));
    bool in_block = backend->explicit;
    if (backend->savepoint) {
        store_abort(&sim.store, backend->part);
        backend->part = store_begin_part(&sim.store, backend->txn);
    } else {
        abort_txn(backend); /* its locks are free at once, not with the ROLLBACK */
    }
    backend->failed = in_block;
    backend->skipping = true;
    finish_call(backend);
}

static void finish_sync(struct backend *backend)
{
    if (backend->txn != TXN_NONE && !backend->explicit) {
        store_commit(&sim.store, backend->txn);
        notify_of(backend);
        backend->txn = TXN_NONE;
        store_unlock_transaction(&sim.store, index_of(backend));
    }
    backend->writes_parked = backend->movers_known = false;
    backend->skipping = false;
    backend->patience_us = 0;
    backend->alone = QUERY_NO_ID;
    say(backend, MESSAGE_ROUND_END, NULL, 0);
    judge_client_told(index_of(backend), sim.now >= backend->cut_at ? backend->heard_at : backend->said_at);
    finish_call(backend);
}

/* Visible now; the locks follow. */
static void finish_commit(struct backend *backend)
{
    if (backend->txn != TXN_NONE && !backend->releasing) {
        store_commit(&sim.store, backend->txn);
        notify_of(backend);
        backend->releasing = true;
        backend->next_at = sim.now + sim_draw(1, 50);
        if (!sim_fails(sim.plan.rates.backend_killed))
            return;
        /* The commit is done and nobody will hear of it. */
        end_backend(backend, sim.now + sim_draw(20, 200 * MS_US));
        return;
    }
    store_unlock_transaction(&sim.store, index_of(backend));
    backend->releasing = backend->explicit = backend->savepoint = backend->failed = false;
    backend->writes_parked = backend->movers_known = false;
    backend->txn = TXN_NONE;
    server_reply(backend, result_new(PGRES_COMMAND_OK, 0, 0));
    finish_call(backend);
}

static void finish_rollback(struct backend *backend)
{
    abort_txn(backend);
    backend->explicit = backend->savepoint = backend->failed = false;
    server_reply(backend, result_new(PGRES_COMMAND_OK, 0, 0));
    finish_call(backend);
}

/* A failure that looks like one of a row: of a single one, it may be blamed on that. */
static bool may_be_blamed(const struct call *call)
{
    const struct list *ids = &call->lists[call->query == QUERY_BURY];
    if (call->query != QUERY_DONE && call->query != QUERY_BURY && call->query != QUERY_KEPT)
        return call->query != QUERY_NOTHING && call->query != QUERY_PARK && call->query != QUERY_UNPARK &&
               (call->query < QUERY_LEASES || call->query > QUERY_GIVE_BACK);
    if (ids->count == 1)
        judge_refused(store_find_row(&sim.store, ids->values[0]), true);
    return true;
}

static bool writes_parked(enum query query)
{
    return query == QUERY_PARK || query == QUERY_UNPARK || (query >= QUERY_GRANT && query <= QUERY_DUE);
}

static void finish_query(struct backend *backend)
{
    const struct call *call = backend->calls;
    if (sim_fails(sim.plan.rates.sql_error)) {
        size_t i = (size_t)sim_draw(0, (int64_t)failure_count - 1);
        bool of_row = sqlstate_rule(failures[i].sqlstate)->refusal == REFUSAL_OF_ROW;
        fail(backend, of_row && !may_be_blamed(call) ? "40001" : failures[i].sqlstate);
        if (failures[i].fatal)
            end_backend(backend, arrival(backend));
        return;
    }
    backend->waits_for = TXN_NONE;
    backend->refusal = NULL;
    if (!query_run(backend, call)) {
        if (backend->refusal) {
            fail(backend, backend->refusal);
            return;
        }
        TRACE("backend %d: %s waits", index_of(backend), query_names[call->query]);
        backend->next_at = backend->started_at + (backend->patience_us > 0 ? backend->patience_us : LOCK_TIMEOUT_US);
        return;
    }
    if (call->query == QUERY_LISTEN)
        backend->listening = true;
    if (writes_parked(call->query) && call->query != QUERY_UNPARK)
        backend->notifies = backend->notifies || server_somebody_rests();
    finish_call(backend);
}

static void vacuum(void)
{
    int64_t oldest = sim.store.commits;
    for (int i = 0; i < server.count; i++) {
        const struct backend *backend = &server.backends[i];
        if (backend->alive && backend->running && backend->snapshot.commits < oldest)
            oldest = backend->snapshot.commits;
    }
    store_vacuum_waits(&sim.store, oldest);
}

static void start_call(struct backend *backend)
{
    if (sim.store.wait_count > VACUUM_WAITS)
        vacuum();
    const struct call *call = backend->calls;
    backend->running = true;
    sim.totals.statements++;
    backend->started_at = sim.now;
    bool needs_txn = call->query > QUERY_EOF && call->query != QUERY_LISTEN && call->query != QUERY_NOTHING;
    if (needs_txn && backend->txn == TXN_NONE && !backend->failed)
        backend->txn = backend->part = store_begin(&sim.store);
    backend->writes_parked |= backend->txn != TXN_NONE && writes_parked(call->query); /* locked before it looks */
    backend->snapshot = (struct snapshot){sim.store.commits, backend->txn};
    bool slow = call->query != QUERY_EOF && sim_fails(sim.plan.rates.statement_slow);
    backend->next_at = sim.now + (slow ? sim_draw(1000, 300 * MS_US) : needs_txn ? sim_draw(20, 300) : 5);
    if (call->query == QUERY_LAST_LOOK && sim_chance(300))
        backend->next_at += sim_draw(1, 20) * MS_US; /* it goes over the whole table */
    if (call->query != QUERY_EOF && sim_fails(sim.plan.rates.backend_killed))
        end_backend(backend, sim.now + sim_draw(20, 200 * MS_US));
}

static void begin_block(struct backend *backend)
{
    backend->txn = backend->part = store_begin(&sim.store);
    backend->explicit = true;
    server_reply(backend, result_new(PGRES_COMMAND_OK, 0, 0));
    finish_call(backend);
}

/* There is at most one: whoever wants another releases it first. */
static void use_savepoint(struct backend *backend, enum query query)
{
    if (query == QUERY_SAVEPOINT && backend->savepoint)
        judge_violation("savepoints", NULL, "a session sets a savepoint inside of another: they pile up");
    if (!backend->explicit || backend->savepoint == (query == QUERY_SAVEPOINT)) {
        fail(backend, "3B001");
        return;
    }
    if (query == QUERY_SAVEPOINT)
        backend->part = store_begin_part(&sim.store, backend->txn);
    else if (query == QUERY_RELEASE)
        backend->part = backend->txn;
    backend->savepoint = query != QUERY_RELEASE;
    backend->failed = false;
    server_reply(backend, result_new(PGRES_COMMAND_OK, 0, 0));
    finish_call(backend);
}

static void run_call(struct backend *backend)
{
    enum query query = backend->calls->query;
    bool ends_failed = query == QUERY_ROLLBACK || query == QUERY_COMMIT || (query == QUERY_UNDO && backend->savepoint);
    TRACE("backend %d (relay %d): %s", index_of(backend), backend->process, query_names[query]);
    if (query == QUERY_EOF) {
        end_backend(backend, sim.now);
    } else if (query == QUERY_SYNC) {
        finish_sync(backend);
    } else if (backend->skipping) {
        server_reply(backend, result_new(PGRES_PIPELINE_ABORTED, 0, 0));
        finish_call(backend);
    } else if (backend->failed && !ends_failed) {
        fail(backend, "25P02");
    } else if (query == QUERY_BEGIN) {
        begin_block(backend);
    } else if (query >= QUERY_SAVEPOINT && query <= QUERY_RELEASE) {
        use_savepoint(backend, query);
    } else if (query == QUERY_COMMIT) {
        finish_commit(backend);
    } else if (query == QUERY_ROLLBACK) {
        finish_rollback(backend);
    } else {
        finish_query(backend);
    }
}

/* ---- what the loop calls ---- */

/* A transaction that somebody waited for has ended. */
static bool may_go_on(const struct backend *backend)
{
    return backend->waits_for != TXN_NONE && sim.store.txns[backend->waits_for].state != TXN_OPEN;
}

instant_us server_next(void)
{
    instant_us next_at = INSTANT_NEVER;
    for (int i = 0; i < server.count; i++) {
        struct backend *backend = &server.backends[i];
        if (!backend->alive)
            continue;
        instant_us at = may_go_on(backend) ? sim.now : backend->next_at;
        server.next = at < next_at ? backend : server.next;
        next_at = instant_min(next_at, at);
    }
    return next_at;
}

void server_step(void)
{
    struct backend *backend = server.next;
    if (!backend->running)
        start_call(backend);
    else if (backend->waits_for != TXN_NONE && !may_go_on(backend))
        fail(backend, "55P03"); /* also how a deadlock ends here */
    else
        run_call(backend);
}
