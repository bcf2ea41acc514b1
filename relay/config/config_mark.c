#include "relay/config/config_mark.h"

#include "relay/base/arena.h"
#include "relay/config/config_expand.h"

#include <stdlib.h>
#include <string.h>

#define PATH_BYTES_MAX 300

struct config_mark {
    char *path;
    char *file;                   /* NULL: it names none */
    const struct yaml_node *node; /* of use only while the file is read */
    int line, column;
};

/* "password_file", or "ssl.key.location", which stands in a map. What has a secret in it is called neither. */
static char *file_of(const char *name, const struct yaml_node *value)
{
    size_t size = strlen(name), suffix = strlen("_file");
    bool named = size > suffix && strcmp(name + size - suffix, "_file") == 0;
    struct error err;
    if (value->kind != YAML_SCALAR || !(named || strstr(name, ".location") || strstr(name, ".keytab")))
        return NULL;
    return config_expand(value->text, &err);
}

static void add_all(struct config *config, const char *prefix, const struct yaml_node *map)
{
    config->marks = memory_resize(config->marks, config->mark_count + map->count, sizeof *config->marks);
    for (size_t i = 0; i < map->count; i++) {
        const struct yaml_pair *pair = &map->pairs[i];
        char path[PATH_BYTES_MAX];
        snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] ? "." : "", pair->name);
        config->marks[config->mark_count++] = (struct config_mark){memory_text(path), file_of(pair->name, pair->value),
                                                                   pair->value, pair->value->line, pair->value->column};
    }
}

void config_mark_all(struct config *config, const struct yaml_node *root)
{
    if (root->kind != YAML_MAP || root->count == 0)
        return;
    add_all(config, "", root);
    /* What is added goes to the end and has its turn there. */
    for (size_t i = 0; i < config->mark_count; i++) {
        const struct yaml_node *node = config->marks[i].node;
        config->marks[i].node = NULL;
        if (node->kind == YAML_MAP && node->count > 0)
            add_all(config, config->marks[i].path, node);
    }
}

void config_mark_free(struct config *config)
{
    for (size_t i = 0; i < config->mark_count; i++) {
        free(config->marks[i].path);
        free(config->marks[i].file);
    }
    free(config->marks);
}

const char *config_mark_file(const struct config *config, size_t mark, const char **ret_path)
{
    *ret_path = config->marks[mark].path;
    return config->marks[mark].file;
}

static const struct config_mark *find(const struct config *config, const char *path)
{
    size_t size = strlen(path);
    for (size_t i = 0; i < config->mark_count; i++) {
        const struct config_mark *mark = &config->marks[i];
        if (strncmp(mark->path, path, size) == 0 && (!mark->path[size] || strcmp(mark->path + size, "_file") == 0))
            return mark;
    }
    return NULL;
}

void config_mark_where(const struct config *config, const char *path, char *ret, size_t size)
{
    char outer[PATH_BYTES_MAX];
    snprintf(outer, sizeof outer, "%s", path);
    const struct config_mark *mark;
    for (char *dot; !(mark = find(config, outer)) && (dot = strrchr(outer, '.')) != NULL;)
        *dot = '\0';
    if (mark)
        snprintf(ret, size, "%s:%d:%d", config->path, mark->line, mark->column);
    else
        snprintf(ret, size, "%s", config->path);
}
