#include "relay/commands/other_queue.h"

#include "relay/base/arena.h"
#include "relay/base/suggest.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char works[] = "{other queue}";

static bool is_configured(const struct config *config, const char *name)
{
    for (size_t i = 0; config && i < config->queue_count; i++)
        if (strcmp(config->queues[i].name, name) == 0)
            return true;
    return false;
}

static void add_name(char list[ERROR_TEXT_MAX / 4], const char *name)
{
    size_t used = strlen(list);
    snprintf(list + used, ERROR_TEXT_MAX / 4 - used, "%s%s", used ? ", " : "", name);
}

static bool unknown(const struct config *config, const PGresult *known, const char *name, struct error *err)
{
    size_t configured = config ? config->queue_count : 0, count = (size_t)PQntuples(known);
    const char **names = memory_array(configured + count + 1, sizeof *names);
    char own[ERROR_TEXT_MAX / 4] = "", others[ERROR_TEXT_MAX / 4] = "", hint[96];
    for (size_t i = 0; i < configured; i++) {
        names[i] = config->queues[i].name;
        add_name(own, names[i]);
    }
    for (size_t i = 0; i < count; i++) {
        names[configured + i] = query_text(known, (int)i, 0);
        if (!is_configured(config, names[configured + i]))
            add_name(others, names[configured + i]);
    }
    suggest_text(name, names, hint, sizeof hint);
    free(names);
    if (!config)
        return error_set(err, ERROR_USAGE, "there is no queue \"%.80s\"%s (there are: %s)", name, hint,
                         others[0] ? others : "none");
    return error_set(err, ERROR_USAGE, "%s has no queue \"%.80s\"%s (its queues: %s%s%s)", config->path, name, hint,
                     own, others[0] ? "; others in the database: " : "", others);
}

bool other_queue_check(PGconn *conn, const struct config *config, const char *name, struct error *err)
{
    if (is_configured(config, name))
        return true;
    PGresult *known = query(conn, "queues", sql_queue_names, 0, NULL, err);
    if (!known)
        return privilege_explain(conn, 0, works, err);
    bool found = false;
    for (int row = 0; row < PQntuples(known); row++)
        found = found || strcmp(query_text(known, row, 0), name) == 0;
    if (!found)
        unknown(config, known, name, err);
    PQclear(known);
    return found;
}

/* The columns of sql/table/queue_settings.sql. */
enum { SETTINGS_TABLE, SETTINGS_ID, SETTINGS_KEY, SETTINGS_LOCK_CLASS };

/* What is parked of a replay stands under a name that outbox.replay_name() makes. 0: it is not that. */
static int64_t replay_of(const char *name)
{
    const char *last = strrchr(name, '(');
    int64_t id = 0;
    int end = 0;
    return last && sscanf(last, "(replay %" SCNd64 ")%n", &id, &end) == 1 && end > 0 && last[end] == '\0' ? id : 0;
}

static bool unreadable(const char *name, struct error *err)
{
    int64_t replay = replay_of(name);
    if (replay > 0)
        return error_set(err, ERROR_USAGE,
                         "\"%.80s\" is no queue but a replay that has stopped: `pgcourier replay -c FILE --resume "
                         "%" PRId64 "` opens its closed keys and goes on, --cancel %" PRId64 " forgets what is left",
                         name, replay, replay);
    return error_set(err, ERROR_USAGE,
                     "nothing here says which table queue %.80s has: give the configuration of the relay that serves "
                     "it, or make it known by outbox.queue_set('%.80s', ...)",
                     name, name);
}

struct queue_config *other_queue_read(PGconn *conn, const char *name, struct error *err)
{
    PGresult *found = query(conn, "queues", sql_queue_settings, 1, &name, err);
    if (!found) {
        privilege_explain(conn, 0, works, err);
        return NULL;
    }
    struct queue_config *queue = NULL;
    if (PQntuples(found) == 0)
        (void)unreadable(name, err);
    else if (!query_text(found, 0, SETTINGS_TABLE))
        error_set(err, ERROR_USAGE, "the table of queue %.80s is gone; fix: select outbox.queue_drop('%.80s');", name,
                  name);
    else {
        queue = memory_new(sizeof *queue);
        queue->name = memory_text(name);
        queue->place = memory_text("outbox.queue");
        queue->table = memory_text(query_text(found, 0, SETTINGS_TABLE));
        queue->columns.id = memory_text(query_text(found, 0, SETTINGS_ID));
        queue->columns.key = memory_text(query_text(found, 0, SETTINGS_KEY));
        queue->lock_class = query_int(found, 0, SETTINGS_LOCK_CLASS);
    }
    PQclear(found);
    return queue;
}

void other_queue_free(struct queue_config *queue)
{
    if (!queue)
        return;
    free(queue->name);
    free(queue->place);
    free(queue->table);
    free(queue->columns.id);
    free(queue->columns.key);
    free(queue);
}
