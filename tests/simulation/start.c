/* What the relay finds around it when it starts: a clock, a pollset that only keeps the deadline, signals, a database
 * whose table is as it should be. These definitions take the place of the real ones when the program is linked. */
#include "tests/simulation/start.h"
#include "ordering/ordering.h"
#include "relay/base/pollset.h"
#include "relay/commands/command.h"
#include "relay/postgres/connect.h"
#include "relay/side/serving.h"
#include "relay/table/table.h"
#include "relay/table/table_sql.h"
#include "sql_text.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* ---- relay/base/clock.h ---- */

instant_us clock_now(void)
{
    return sim.now;
}

int64_t clock_wall_us(void)
{
    return sim.now;
}

/* ---- relay/base/pollset.h ---- */

struct pollset {
    instant_us deadline;
};

struct pollset *pollset_new(void)
{
    return memory_new(sizeof(struct pollset));
}

void pollset_free(struct pollset *ps)
{
    free(ps);
}

void pollset_clear(struct pollset *ps)
{
    ps->deadline = INSTANT_NEVER;
}

void pollset_add(struct pollset *ps, int fd, short events)
{
    (void)ps;
    (void)fd;
    (void)events;
}

void pollset_deadline(struct pollset *ps, instant_us deadline)
{
    ps->deadline = instant_min(ps->deadline, deadline);
}

instant_us pollset_next_deadline(const struct pollset *ps)
{
    return ps->deadline;
}

bool pollset_wait(struct pollset *ps, instant_us now, struct error *err)
{
    (void)ps;
    (void)now;
    return error_set(err, ERROR_INTERNAL, "nobody waits in a simulation");
}

int64_t pollset_waited_us(const struct pollset *ps)
{
    (void)ps;
    return 0;
}

short pollset_revents(const struct pollset *ps, int fd)
{
    (void)ps;
    (void)fd;
    return 0;
}

/* ---- signals: read(2) in relay/relay.c ---- */

ssize_t __real_read(int fd, void *buffer, size_t size);
ssize_t __wrap_read(int fd, void *buffer, size_t size);

ssize_t __wrap_read(int fd, void *buffer, size_t size)
{
    if (fd != START_SIGNAL_FD)
        return __real_read(fd, buffer, size);
    struct process *process = &sim.processes[sim.current];
    if (process->signals == 0)
        return -1;
    process->signals--;
    *(struct signalfd_siginfo *)buffer = (struct signalfd_siginfo){.ssi_signo = SIGTERM};
    return sizeof(struct signalfd_siginfo);
}

/* ---- relay/commands/command.h, relay/table/table.h, relay/table/table_sql.h ---- */

PGconn *command_connect(const char *database, const char *command, struct error *err)
{
    static char connection;
    (void)database;
    (void)command;
    (void)err;
    return (PGconn *)&connection; /* nobody looks into it */
}

struct table *table_inspect(PGconn *conn, const struct queue_config *queue, struct error *err)
{
    (void)conn;
    (void)queue;
    (void)err;
    static char sequence[] = "s", priority[] = "p", not_before[] = "n";
    struct table *table = memory_new(sizeof *table);
    table->payload_kind = PAYLOAD_TEXT;
    table->key_type = KEY_TEXT;
    table->lock_class = 7;
    table->index_key_id = true;
    table->places = sim.plan.places;
    table->sequence_sql = sim.plan.sequence ? sequence : NULL;
    table->not_before_sql = sim.plan.holds || sim.plan.passes ? not_before : NULL;
    table->priority_sql = sim.plan.priority ? priority : NULL;
    return table;
}

void table_free(struct table *table)
{
    free(table);
}

bool table_check(PGconn *conn, const struct queue_config *queue, const struct table *table, struct findings *ret,
                 struct error *err)
{
    (void)conn;
    (void)queue;
    (void)table;
    (void)ret;
    (void)err;
    return true;
}

bool table_check_shared(PGconn *conn, const struct queue_config *queue, const struct table *table,
                        const struct queue_config *other, const struct table *other_table, struct error *err)
{
    (void)conn;
    (void)queue;
    (void)table;
    (void)other;
    (void)other_table;
    (void)err;
    return true;
}

bool serving_begin(PGconn *conn, const struct config *process, const struct queue_config *config,
                   const struct table *table, struct error *err)
{
    (void)conn;
    (void)process;
    (void)config;
    (void)table;
    (void)err;
    return true;
}

void serving_statement(const struct queue *queue, bool shared, struct arena *arena, struct statement *ret)
{
    (void)queue;
    (void)shared;
    (void)arena;
    (void)ret;
}

bool serving_take(const struct queue *queue, const PGresult *res, struct error *err)
{
    (void)queue;
    (void)res;
    (void)err;
    return true;
}

enum error_kind findings_kind(const struct findings *findings)
{
    (void)findings;
    return ERROR_CONFIG;
}

const struct sql_variable *table_variables(const struct table *table, const struct queue_config *queue,
                                           struct arena *arena)
{
    (void)table;
    (void)queue;
    return arena_alloc(arena, sizeof(struct sql_variable));
}

const struct sql_variable *table_guarded_variables(const struct table *table, const struct queue_config *queue,
                                                   struct arena *arena)
{
    return table_variables(table, queue, arena);
}

/* ---- relay/base/statement.h: a statement's text is only a number here, that of its query ---- */

static bool says(const struct sql_variable *variables, const char *text)
{
    bool found = false;
    for (; variables->name; variables++)
        found = found || strcmp(variables->text, text) == 0;
    return found;
}

/* Which text of lock_events.sql it is. */
static enum query query_of_events(const struct sql_variable *variables)
{
    const char *stretch = "";
    for (const struct sql_variable *v = variables; v->name; v++)
        stretch = strcmp(v->name, "stretch") == 0 ? v->text : stretch;
    return strstr(stretch, ":priority < $1")         ? QUERY_LOCK_BELOW
           : strstr(stretch, ":priority between $1") ? QUERY_LOCK_TOP
           : strstr(stretch, "coalesce(:priority")   ? QUERY_LOCK_URGENT
           : says(variables, ":id desc")             ? QUERY_LOCK_LATEST
                                                     : QUERY_LOCK_LOWEST;
}

char *__wrap_sql_render(const char *template, const struct sql_variable *variables, struct error *err);

char *__wrap_sql_render(const char *template, const struct sql_variable *variables, struct error *err)
{
    static const struct {
        const char *template;
        enum query query;
    } known[] = {
        {sql_lock_ids, QUERY_LOCK_NEWEST},    {sql_lock_named, QUERY_LOCK_NAMED},
        {sql_lock_due, QUERY_LOCK_DUE},       {sql_fresh_lock, QUERY_LOCK_FRESH},
        {sql_lock_events, QUERY_LOCK_LATEST}, {sql_unordered_read, QUERY_READ_EVENTS},
        {sql_per_key_read, QUERY_READ},       {sql_per_key_read_few, QUERY_READ_FEW},
        {sql_fresh_read, QUERY_READ_FRESH},   {sql_settle_delete, QUERY_DONE},
        {sql_settle_archive, QUERY_DONE},     {sql_settle_bury, QUERY_BURY},
        {sql_settle_park, QUERY_PARK},        {sql_settle_unpark, QUERY_UNPARK},
        {sql_horizon_drawn, QUERY_DRAWN},     {sql_horizon_seen, QUERY_SEEN},
        {sql_settle_undeleted, QUERY_KEPT},   {sql_horizon_holders, QUERY_HOLDERS},
        {sql_horizon_movers, QUERY_MOVERS},   {sql_horizon_floor, QUERY_FLOOR},
        {sql_queue_empty, QUERY_EMPTY},       {sql_rest_look, QUERY_LAST_LOOK},
        {sql_claim_peek, QUERY_PEEK},         {sql_lease_grant, QUERY_GRANT},
        {sql_lease_renew, QUERY_RENEW},       {sql_settle_leases, QUERY_LEASES},
        {sql_settle_move, QUERY_MOVE},        {sql_settle_give_back, QUERY_GIVE_BACK},
        {sql_session_lock, QUERY_KEEP},       {sql_delayed_due, QUERY_DUE},
        {sql_dead_purge, QUERY_UPKEEP},       {sql_session_unlock, QUERY_FREE},
        {sql_unreadable_ids, QUERY_SEARCH},   {sql_unreadable_ids_of_key, QUERY_SEARCH},
        {sql_unreadable_where, QUERY_SEARCH}, {sql_unreadable_read, QUERY_SEARCH},
        {sql_unreadable_known, QUERY_SEARCH},
    };
    if (!strchr(template, '\n')) /* what is a part of a statement says itself */
        return memory_text(template);
    bool oldest = says(variables, "asc"), first = says(variables, "desc") && !says(variables, "false");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].template == template) {
            char text[16];
            snprintf(text, sizeof text, "#%d",
                     (int)(oldest                        ? QUERY_LOCK_OLDEST
                           : first                       ? QUERY_LOCK_FIRST
                           : template == sql_lock_events ? query_of_events(variables)
                                                         : known[i].query));
            return memory_text(text);
        }
    error_set(err, ERROR_INTERNAL, "the simulation does not know this statement: %.60s", template);
    return NULL;
}
