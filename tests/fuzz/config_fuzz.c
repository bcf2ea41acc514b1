/* Configuration files: any bytes are either a configuration whose every value is within its bounds, or one line that
 * says where and what is wrong. */
#include "tests/fuzz/fuzz.h"

#include "relay/config/config.h"
#include "relay/config/config_tables.h"
#include "relay/config/yaml.h"
#include "sinks/sink.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static int file = -1;
static char path[32];

static void check_number(const struct setting *row, int64_t value)
{
    FUZZ_CHECK(value >= row->min && (row->max == 0 || value <= row->max), "%s is %lld", row->name, (long long)value);
}

static void check_values(const struct setting *table, const void *values)
{
    for (const struct setting *row = table; row->name; row++) {
        const char *at = (const char *)values + row->offset;
        if (row->kind == SETTING_COUNT || row->kind == SETTING_SIZE || row->kind == SETTING_DURATION)
            check_number(row, *(const int64_t *)(const void *)at);
        else if (row->required && (row->kind == SETTING_TEXT || row->kind == SETTING_URL))
            FUZZ_CHECK(*(char *const *)(const void *)at, "%s is missing", row->name);
    }
}

static void check_queue(const struct config *config, const struct queue_config *queue)
{
    check_values(queue_settings, queue);
    for (const struct config_group *group = queue_groups; group->name; group++)
        check_values(group->settings, queue);
    FUZZ_CHECK(queue->columns.id && queue->table && config_sink(config, queue->sink), "half a queue");
    FUZZ_CHECK(queue->retry_base_us <= queue->retry_max_us && queue->latency_us <= queue->poll_max_us, "a range");
    for (const struct queue_config *other = config->queues; other < queue; other++)
        FUZZ_CHECK(strcmp(other->name, queue->name) != 0, "two queues called %s", queue->name);
}

static void check_config(const struct config *config)
{
    check_values(config_settings, config);
    FUZZ_CHECK(config->database && config->sink_count > 0 && config->queue_count > 0, "half a configuration");
    for (size_t i = 0; i < config->sink_count; i++) {
        check_values(sink_settings, &config->sinks[i]);
        check_values(config->sinks[i].type->settings, config->sinks[i].settings);
    }
    for (size_t i = 0; i < config->queue_count; i++)
        check_queue(config, &config->queues[i]);
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as a configuration, which yaml.c bounds. */
static void check_node(const struct yaml_node *node, int depth)
{
    FUZZ_CHECK(node->line > 0 && node->column > 0 && depth < 100, "%d:%d", node->line, node->column);
    FUZZ_CHECK(node->kind != YAML_SCALAR || node->text, "a scalar without a text");
    for (size_t i = 0; i < node->count; i++) {
        const struct yaml_pair *pair = &node->pairs[i];
        FUZZ_CHECK(yaml_find(node, pair->name) == pair, "%s is there twice", pair->name);
        check_node(pair->value, depth + 1);
    }
}

static void check_yaml(struct span bytes)
{
    char *text = memory_new(bytes.size + 1);
    memcpy(text, bytes.data, bytes.size);
    struct error err = {0};
    struct yaml *yaml = yaml_parse("f", text, bytes.size, &err);
    if (yaml) {
        check_node(yaml_root(yaml), 0);
    } else {
        fuzz_check_error(&err);
        FUZZ_CHECK(err.kind == ERROR_CONFIG && strncmp(err.text, "f:", 2) == 0, "%s", err.text);
    }
    yaml_free(yaml);
    free(text);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    clearenv();
    setenv("NAME", "value", 1);
    setenv("EMPTY", "", 1);
    setenv("PGSSLMODE", "disable", 1); /* a database of another machine is no reason to read no further */
    file = memfd_create("config", MFD_CLOEXEC);
    FUZZ_CHECK(file >= 0, "memfd_create: %s", strerror(errno));
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return 0;
}

/* The text of a value with five quotes in a row, each written '', leaks in libfyaml 0.7.12: pantoniou/libfyaml#233. */
static bool is_known_to_leak(struct span bytes)
{
    size_t escaped = 0;
    for (size_t i = 1; i < bytes.size; i++)
        escaped += bytes.data[i - 1] == '\'' && bytes.data[i] == '\'';
    return escaped >= 5;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span bytes = {size ? (const char *)data : "", size};
    if (is_known_to_leak(bytes))
        return 0;
    check_yaml(bytes);
    FUZZ_CHECK(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size, "%s", strerror(errno));
    struct error err = {0};
    struct config *config = config_load(path, &err);
    if (config) {
        check_config(config);
    } else {
        fuzz_check_error(&err);
        FUZZ_CHECK(err.kind == ERROR_CONFIG || err.kind == ERROR_PERMISSION, "%s: %s", error_kind_name(err.kind),
                   err.text);
        FUZZ_CHECK(strncmp(err.text, path, strlen(path)) == 0, "no place in: %s", err.text);
    }
    config_free(config);
    return 0;
}
