#include "relay/check_database.h"

#include "relay/command.h"
#include "relay/table.h"

static void print_finding(const char *queue, const struct finding *finding)
{
    printf("%s: %s: %s", queue, finding->level == FINDING_ERROR ? "error" : "warning", finding->text);
    if (finding->remedy[0])
        printf("  fix: %s", finding->remedy);
    putchar('\n');
}

/* False and *err only when the database failed. A table that cannot serve is a finding too. */
static bool check_queue(PGconn *conn, const struct queue_config *queue, struct findings *total, struct error *err)
{
    struct table *table = table_inspect(conn, queue, err);
    if (!table && err->kind == ERROR_CONFIG) {
        printf("%s: error: %s\n", queue->name, err->text);
        total->errors++;
        return true;
    }
    struct findings findings;
    bool ok = table && table_check(conn, queue, table, &findings, err);
    table_free(table);
    if (!ok)
        return false;
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
    struct findings total = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < config->queue_count; i++)
        ok = check_queue(conn, &config->queues[i], &total, &err);
    PQfinish(conn);
    if (!ok)
        return command_fail(&err);
    return total.errors ? exit_code_of(findings_kind(&total)) : EXIT_OK;
}
