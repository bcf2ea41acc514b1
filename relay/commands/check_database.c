#include "relay/commands/check_database.h"

#include "relay/base/arena.h"
#include "relay/commands/command.h"
#include "relay/postgres/connect.h"
#include "relay/table/table.h"

#include <stdlib.h>

static void print_finding(const char *queue, const struct finding *finding)
{
    printf("%s: %s: %s", queue, finding->level == FINDING_ERROR ? "error" : "warning", finding->text);
    if (finding->remedy[0])
        printf("  fix: %s", finding->remedy);
    putchar('\n');
}

static bool print_error(const struct queue_config *queue, const struct error *err, struct findings *total)
{
    printf("%s: error: %s\n", queue->name, err->text);
    total->errors++;
    return true;
}

/* One queue after the other: tables[i] is the table of queue i, or NULL. */
struct database_check {
    PGconn *conn;
    const struct config *config;
    struct table **tables;
    struct findings total;
};

/* False and *err only when the database failed. A table that cannot serve is a finding too. */
static bool check_queue(struct database_check *check, size_t index, struct error *err)
{
    const struct queue_config *queues = check->config->queues, *queue = &queues[index];
    struct findings *total = &check->total;
    struct table *table = check->tables[index] = table_inspect(check->conn, queue, err);
    if (!table && err->kind == ERROR_CONFIG)
        return print_error(queue, err, total);
    struct findings findings;
    if (!table || !table_check(check->conn, queue, table, &findings, err))
        return false;
    for (size_t i = 0; i < index; i++) {
        if (!check->tables[i] || table_check_shared(check->conn, queue, table, &queues[i], check->tables[i], err))
            continue;
        if (err->kind != ERROR_CONFIG)
            return false;
        print_error(queue, err, total);
    }
    for (size_t i = 0; i < findings.count; i++)
        print_finding(queue->name, &findings.list[i]);
    total->errors += findings.errors;
    total->denied += findings.denied;
    return true;
}

int check_database(const struct config *config)
{
    struct error err = {0};
    PGconn *conn = command_connect(config->database, "check-config", &err);
    if (!conn)
        return command_fail(&err);
    struct database_check check = {
        .conn = conn, .config = config, .tables = memory_array(config->queue_count, sizeof(void *))};
    bool ok = true;
    for (size_t i = 0; ok && i < config->queue_count; i++)
        ok = check_queue(&check, i, &err);
    PQfinish(conn);
    for (size_t i = 0; i < config->queue_count; i++)
        table_free(check.tables[i]);
    free(check.tables);
    if (!ok)
        return command_fail(&err);
    return check.total.errors ? exit_code_of(findings_kind(&check.total)) : EXIT_OK;
}
