#include "relay/config/config.h"
#include "relay/config/config_preset.h"
#include "relay/config/config_tables.h"
#include "sinks/sink.h"

#include <string.h>

/* A bar would end the cell. */
static void print_cell(FILE *out, const char *text)
{
    for (; *text; text++)
        fprintf(out, *text == '|' ? "\\%c" : "%c", *text);
}

static bool is_number(const struct setting *row)
{
    return row->kind == SETTING_COUNT || row->kind == SETTING_SIZE || row->kind == SETTING_DURATION;
}

/* Of a number the range alone: its unit says the kind. */
static void print_row(FILE *out, const char *prefix, const struct setting *row)
{
    char what[200];
    setting_describe(row, what, sizeof what);
    const char *shown = strncmp(what, "a ", 2) == 0 ? what + 2 : what;
    if (is_number(row))
        shown = strstr(what, ", ") + 2;
    fprintf(out, "| `%s%s` | %s", prefix, row->name, shown);
    if (row->required)
        fputs(" (required)", out);
    else if (row->fallback && *row->fallback)
        fprintf(out, " (`%s`)", row->fallback);
    fputs(" | ", out);
    print_cell(out, row->help);
    fputs(" |\n", out);
}

static void print_rows(FILE *out, const char *prefix, const struct setting *table)
{
    for (const struct setting *row = table; row->name; row++)
        print_row(out, prefix, row);
}

static void print_head(FILE *out)
{
    fputs("\n| key | value (default) | |\n|---|---|---|\n", out);
}

static void print_sinks(FILE *out)
{
    fputs("\n## Sinks\n\n`sinks` maps names to sinks. Every sink has:\n", out);
    print_head(out);
    print_rows(out, "", sink_type_settings);
    print_rows(out, "", sink_settings);
    for (size_t i = 0; sink_types[i]; i++) {
        const struct sink_type *type = sink_types[i];
        fprintf(out, "\n### type: %s\n\n%s.%s\n", type->name, type->help,
                type->needs_destination ? " The queue's `destination` is required." : "");
        if (!type->settings[0].name)
            continue;
        print_head(out);
        print_rows(out, "", type->settings);
    }
}

static void print_queues(FILE *out)
{
    fputs("\n## Queues\n\n`queues` maps names to queues.\n", out);
    print_head(out);
    print_rows(out, "", queue_settings);
    for (const struct config_group *group = queue_groups; group->name; group++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "%s.", group->name);
        fprintf(out, "\n`%s: { ... }`: %s.\n", group->name, group->help);
        print_head(out);
        print_rows(out, prefix, group->settings);
    }
    fprintf(out, "\nWithout `table` a queue reads `%s` with these columns:\n\n", outbox_table);
    for (const struct setting *row = outbox_columns; row->name; row++)
        fprintf(out, "%s`%s: %s`", row == outbox_columns ? "" : ", ", row->name, row->fallback);
    fputs(".\n", out);
    config_preset_print_reference(out);
}

static const char introduction[] =
    "# Configuration\n"
    "\n"
    "For anyone who writes a configuration file.\n"
    "\n"
    "<!-- Made by `pgcourier check-config --reference`. Do not edit. -->\n"
    "\n"
    "One YAML file. `pgcourier check-config -c FILE` says whether the file is good, and if not, where and why.\n"
    "\n"
    "```yaml\n"
    "database: \"postgresql:///shop\"\n"
    "sinks:\n"
    "  log: { type: file, path: \"events.jsonl\" }\n"
    "queues:\n"
    "  orders:\n"
    "    table: public.events\n"
    "    columns: { id: id, key: order_id, type: status, created_at: created_at }\n"
    "    sink: log\n"
    "    destination: \"orders.{type}\"\n"
    "    after: archive\n"
    "```\n"
    "\n"
    "## Values\n"
    "\n"
    "- Names of sinks and queues begin with a letter and have up to 63 letters, digits, `_` and `-`.\n"
    "- A duration is a whole number and a unit: `250us`, `10ms`, `1s`, `5m`, `2h`, `1d`.\n"
    "- A size is a number of bytes, or with a unit in powers of 1024: `64kB`, `1MB`, `1GB`.\n"
    "- `${VAR}` is an environment variable, `${VAR:-default}` one that may be unset or empty, `$$` a dollar sign.\n"
    "- A secret `NAME` may be in a file, `NAME_file: PATH`. Secrets are never printed.\n"
    "- YAML anchors, aliases and merge keys (`<<: *base`) work.\n"
    "\n"
    "## Top level\n";

void config_print_reference(FILE *out)
{
    fputs(introduction, out);
    print_head(out);
    print_rows(out, "", config_settings);
    print_sinks(out);
    print_queues(out);
}
