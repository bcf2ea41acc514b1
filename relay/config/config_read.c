#include "relay/config/config_read.h"

#include "relay/base/arena.h"
#include "relay/base/file.h"
#include "relay/base/suggest.h"
#include "relay/config/config_expand.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 128 /* keys that one mapping may know, for suggestions */
#define SECRET_BYTES_MAX ((size_t)64 * 1024)
#define FILE_SUFFIX "_file"

bool config_error(const struct config_place *place, struct error *err, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(err, ERROR_CONFIG, "%s:%d:%d: %s%s%s", place->file, place->line, place->column, place->path,
                     place->path[0] ? ": " : "", text);
}

struct config_place config_place_of(const struct config_place *place, const struct yaml_node *map, const char *name)
{
    struct config_place ret = *place;
    snprintf(ret.path, sizeof ret.path, "%s%s%s", place->path, place->path[0] ? "." : "", name);
    const struct yaml_pair *pair = yaml_find(map, name);
    if (pair) {
        ret.line = pair->value->line;
        ret.column = pair->value->column;
    }
    return ret;
}

bool config_need_map(const struct config_place *place, const struct yaml_node *node, const char *wanted,
                     struct error *err)
{
    if (node->kind == YAML_MAP)
        return true;
    return config_error(place, err, "%s stands here; write a mapping of %s", yaml_kind_name(node->kind), wanted);
}

/* The scalar's text with its variables put in; the caller wipes and frees it. */
static char *read_text(const struct config_place *place, const struct yaml_node *node, struct error *err)
{
    if (node->kind == YAML_NULL) {
        config_error(place, err, "no value is given; write one or leave the key out");
        return NULL;
    }
    if (node->kind != YAML_SCALAR) {
        config_error(place, err, "%s stands here; write a single value", yaml_kind_name(node->kind));
        return NULL;
    }
    struct error cause;
    char *text = config_expand(node->text, &cause);
    if (!text)
        config_error(place, err, "%s", cause.text);
    return text;
}

static bool read_map(const struct config_place *place, const struct yaml_node *node, const struct setting *setting,
                     void *values, struct error *err)
{
    if (!config_need_map(place, node, "names to values", err))
        return false;
    for (size_t i = 0; i < node->count; i++) {
        struct config_place at = config_place_of(place, node, node->pairs[i].name);
        char *text = read_text(&at, node->pairs[i].value, err);
        if (!text)
            return false;
        setting_map_put(setting, node->pairs[i].name, text, values);
        memory_wipe(text);
    }
    return true;
}

static bool add_text(const struct config_place *place, const struct setting *setting, const char *text, void *values,
                     struct error *err)
{
    struct error cause;
    return setting_list_add(setting, text, values, &cause) || config_error(place, err, "%s", cause.text);
}

static bool read_list(const struct config_place *place, const struct yaml_node *node, const struct setting *setting,
                      void *values, struct error *err)
{
    if (node->kind != YAML_LIST)
        return config_error(place, err, "%s stands here; write a list: [one, another]", yaml_kind_name(node->kind));
    if (node->count == 0)
        return config_error(place, err, "the list is empty; write at least one value");
    for (size_t i = 0; i < node->count; i++) {
        struct config_place at = config_place_of(place, node, node->pairs[i].name);
        char *text = read_text(&at, node->pairs[i].value, err);
        if (!text)
            return false;
        bool good = add_text(&at, setting, text, values, err);
        memory_wipe(text);
        if (!good)
            return false;
    }
    return true;
}

bool config_read_setting(const struct config_place *place, const struct yaml_node *node, const struct setting *setting,
                         void *values, struct error *err)
{
    if (setting->kind == SETTING_MAP)
        return read_map(place, node, setting, values, err);
    if (setting->kind == SETTING_LIST || setting->kind == SETTING_SECRETS)
        return read_list(place, node, setting, values, err);
    char *text = read_text(place, node, err);
    if (!text)
        return false;
    struct error cause;
    bool good = setting_parse(setting, text, values, &cause);
    if (!good)
        config_error(place, err, "%s", cause.text);
    memory_wipe(text);
    return good;
}

/* One a line, in `text`, which is cut into its lines; empty lines are passed over. */
static bool take_lines(const struct setting *setting, char *text, void *values, struct error *err)
{
    size_t number = 0, taken = 0;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        size_t size = strlen(line);
        if (size > 0 && line[size - 1] == '\r')
            line[size - 1] = '\0';
        number++;
        if (!*line)
            continue;
        if (!setting_list_add(setting, line, values, err))
            return error_prefix(err, "line %zu", number);
        taken++;
    }
    return taken > 0 || error_set(err, ERROR_CONFIG, "is empty; put the secrets into it, one a line");
}

/* Without the line end that editors and `echo` leave. */
static bool take_secret(const struct setting *setting, char *text, void *values, struct error *err)
{
    size_t size = strlen(text);
    if (size > 0 && text[size - 1] == '\n')
        text[--size] = '\0';
    if (size > 0 && text[size - 1] == '\r')
        text[--size] = '\0';
    return size > 0 ? setting_parse(setting, text, values, err)
                    : error_set(err, ERROR_CONFIG, "is empty; put the secret into it");
}

/* `setting` from the file whose path is in `node`. */
static bool read_secret_file(const struct config_place *place, const struct yaml_node *node,
                             const struct setting *setting, void *values, struct error *err)
{
    struct error cause;
    size_t size;
    char *path = read_text(place, node, err), *text = NULL;
    bool good = false;
    if (!path)
        goto done;
    text = file_read(path, SECRET_BYTES_MAX, &size, &cause);
    if (!text) {
        config_error(place, err, "file \"%s\": %s", path, cause.text);
        goto done;
    }
    if (strlen(text) != size) {
        config_error(place, err, "file \"%s\": holds a NUL byte; a secret is one line of text", path);
        goto done;
    }
    good = setting->kind == SETTING_SECRETS ? take_lines(setting, text, values, &cause)
                                            : take_secret(setting, text, values, &cause);
    if (!good)
        config_error(place, err, "file \"%s\": %s", path, cause.text);
done:
    free(path);
    if (text) {
        explicit_bzero(text, size);
        free(text);
    }
    return good;
}

/* ---- a mapping ---- */

/* What a key turned out to be. */
struct found {
    const struct config_keys *keys;
    const struct setting *setting; /* NULL: the key is keys->group */
    bool in_file;
};

static const struct setting *find_secret_file(const struct setting *settings, const char *name)
{
    size_t size = strlen(name), suffix = sizeof FILE_SUFFIX - 1;
    for (const struct setting *row = settings; row->name; row++)
        if (setting_is_secret(row) && strlen(row->name) + suffix == size &&
            strncmp(row->name, name, size - suffix) == 0 && strcmp(name + size - suffix, FILE_SUFFIX) == 0)
            return row;
    return NULL;
}

static bool find_key(const struct config_keys *keys, const char *name, struct found *ret)
{
    for (const struct config_keys *row = keys; row->group || row->settings; row++) {
        *ret = (struct found){.keys = row};
        if (row->group && strcmp(row->group, name) == 0)
            return true;
        if (row->group)
            continue;
        ret->setting = setting_find(row->settings, name);
        if (ret->setting)
            return true;
        ret->setting = find_secret_file(row->settings, name);
        ret->in_file = true;
        if (ret->setting)
            return true;
    }
    return false;
}

static bool unknown_key(struct config_place *place, const struct yaml_pair *pair, const struct config_keys *keys,
                        struct error *err)
{
    /* Here it is the name that is wrong, so that is pointed at. */
    place->line = pair->line;
    place->column = pair->column;
    const char *names[NAMES_MAX + 1];
    size_t count = 0;
    for (const struct config_keys *row = keys; row->group || row->settings; row++) {
        if (row->group && count < NAMES_MAX)
            names[count++] = row->group;
        for (const struct setting *s = row->group ? NULL : row->settings; s && s->name && count < NAMES_MAX; s++)
            names[count++] = s->name;
    }
    names[count] = NULL;
    const char *near = suggest(pair->name, names);
    if (near)
        return config_error(place, err, "no such key; did you mean \"%s\"?", near);
    char list[ERROR_TEXT_MAX / 2];
    size_t used = 0;
    list[0] = '\0';
    for (size_t i = 0; i < count && used < sizeof list; i++) {
        int n = snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    return config_error(place, err, "no such key; known here: %s", list);
}

/* NOLINTBEGIN(misc-no-recursion): the keys of a group hold no group. */
static bool read_key(const struct config_place *place, const struct yaml_node *map, const struct yaml_pair *pair,
                     const struct config_keys *keys, struct error *err)
{
    struct config_place at = config_place_of(place, map, pair->name);
    struct found found;
    if (!find_key(keys, pair->name, &found))
        return unknown_key(&at, pair, keys, err);
    void *values = found.keys->values;
    if (found.in_file && yaml_find(map, found.setting->name))
        return config_error(&at, err, "\"%s\" is given too; keep one of the two", found.setting->name);
    if (found.in_file)
        return read_secret_file(&at, pair->value, found.setting, values, err);
    if (found.setting)
        return config_read_setting(&at, pair->value, found.setting, values, err);
    if (!found.keys->settings)
        return true;
    const struct config_keys inner[] = {{NULL, found.keys->settings, values}, {NULL, NULL, NULL}};
    return config_read(&at, pair->value, inner, err);
}

static bool is_given(const struct yaml_node *map, const struct setting *setting)
{
    char in_file[80];
    snprintf(in_file, sizeof in_file, "%s" FILE_SUFFIX, setting->name);
    return yaml_find(map, setting->name) || (setting_is_secret(setting) && yaml_find(map, in_file));
}

bool config_read(const struct config_place *place, const struct yaml_node *map, const struct config_keys *keys,
                 struct error *err)
{
    if (!config_need_map(place, map, "settings", err))
        return false;
    for (size_t i = 0; i < map->count; i++)
        if (!read_key(place, map, &map->pairs[i], keys, err))
            return false;
    for (const struct config_keys *row = keys; row->group || row->settings; row++) {
        for (const struct setting *s = row->group ? NULL : row->settings; s && s->name; s++)
            if (s->required && !is_given(map, s))
                return config_error(place, err, "\"%s\" is missing; add it: %s", s->name, s->help);
    }
    return true;
}
/* NOLINTEND(misc-no-recursion) */
