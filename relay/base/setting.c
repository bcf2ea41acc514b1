#include "relay/base/setting.h"

#include "relay/base/arena.h"
#include "relay/base/suggest.h"
#include "relay/base/utf8.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

struct unit {
    const char *name;
    int64_t factor;
};

/* Smallest first. The second spelling of a size is for reading only. */
static const struct unit duration_units[] = {
    {"us", 1},
    {"ms", INT64_C(1000)},
    {"s", INT64_C(1000000)},
    {"m", INT64_C(60) * 1000000},
    {"h", INT64_C(3600) * 1000000},
    {"d", INT64_C(86400) * 1000000},
    {NULL, 0},
};
static const struct unit size_units[] = {
    {"B", 1}, {"kB", 1 << 10}, {"MB", 1 << 20}, {"GB", 1 << 30}, {NULL, 0},
};
static const struct unit no_units[] = {{NULL, 0}};

/* What a number of each kind is called and how it is written. */
static const struct number_kind {
    enum setting_kind kind;
    const char *name, *examples;
    const struct unit *units;
    bool unit_needed; /* "10" seconds or milliseconds? Never guess. */
} number_kinds[] = {
    {SETTING_COUNT, "a whole number", "12", no_units, false},
    {SETTING_SIZE, "a size", "64kB, 1MB, 1GB", size_units, false},
    {SETTING_DURATION, "a duration", "250ms, 10s, 5m", duration_units, true},
};

static const struct number_kind *number_kind_of(enum setting_kind kind)
{
    for (size_t i = 0; i < sizeof number_kinds / sizeof number_kinds[0]; i++)
        if (number_kinds[i].kind == kind)
            return &number_kinds[i];
    return NULL;
}

static void *value_of(const struct setting *setting, void *values)
{
    return (char *)values + setting->offset;
}

/* A long value is cut in a message: its beginning is enough to find it. */
static const char *shown(const char *text, char *ret, size_t size)
{
    struct span whole = span_of(text);
    size_t fit = utf8_fit(whole, 60);
    snprintf(ret, size, "\"%.*s%s\"", (int)fit, text, fit < whole.size ? "..." : "");
    return ret;
}

/* ---- numbers ---- */

static void format_number(const struct unit *units, int64_t value, char *ret, size_t size)
{
    const struct unit *best = NULL;
    for (const struct unit *unit = units; unit->name && value != 0; unit++)
        if (value % unit->factor == 0)
            best = unit;
    if (best)
        snprintf(ret, size, "%" PRId64 "%s", value / best->factor, best->name);
    else
        snprintf(ret, size, "%" PRId64, value);
}

static void format_range(const struct setting *setting, const char *between, char *ret, size_t size)
{
    const struct unit *units = number_kind_of(setting->kind)->units;
    char low[32], high[32];
    format_number(units, setting->min, low, sizeof low);
    format_number(units, setting->max, high, sizeof high);
    if (setting->max == 0)
        snprintf(ret, size, "%s or more", low);
    else
        snprintf(ret, size, "%s%s%s", low, between, high);
}

/* False when it is not digits with one of the units. Too large for 64 bits is INT64_MAX, which no range includes. */
static bool read_number(const struct number_kind *kind, const char *text, int64_t *ret, bool *ret_unit_missing)
{
    const char *c = text + (*text == '-');
    if (!isdigit((unsigned char)*c))
        return false;
    int64_t value = 0, factor = 1;
    bool too_large = false;
    for (; isdigit((unsigned char)*c); c++)
        too_large |= __builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *c - '0', &value);
    *ret_unit_missing = *c == '\0' && kind->unit_needed && value != 0;
    if (*c != '\0') {
        const struct unit *unit = kind->units;
        while (unit->name && strcasecmp(unit->name, c) != 0)
            unit++;
        if (!unit->name)
            return false;
        factor = unit->factor;
    }
    too_large |= __builtin_mul_overflow(value, *text == '-' ? -factor : factor, &value);
    *ret = too_large ? INT64_MAX : value;
    return true;
}

static bool parse_number(const struct setting *setting, const char *text, void *values, struct error *err)
{
    const struct number_kind *kind = number_kind_of(setting->kind);
    char quoted[80], range[80];
    int64_t value;
    bool unit_missing;
    shown(text, quoted, sizeof quoted);
    if (!read_number(kind, text, &value, &unit_missing))
        return error_set(err, ERROR_CONFIG, "%s is not %s; write e.g. %s", quoted, kind->name, kind->examples);
    if (unit_missing)
        return error_set(err, ERROR_CONFIG, "%s has no unit; write e.g. %s", quoted, kind->examples);
    format_range(setting, " to ", range, sizeof range);
    if (value < setting->min || value == INT64_MAX || (setting->max != 0 && value > setting->max))
        return error_set(err, ERROR_CONFIG, "%s is out of range; write %s", quoted, range);
    *(int64_t *)value_of(setting, values) = value;
    return true;
}

/* ---- words ---- */

static const struct {
    const char *text;
    bool value;
} bool_words[] = {
    {"true", true}, {"false", false}, {"yes", true}, {"no", false}, {"on", true}, {"off", false},
};

static bool parse_bool(const struct setting *setting, const char *text, void *values, struct error *err)
{
    for (size_t i = 0; i < sizeof bool_words / sizeof bool_words[0]; i++) {
        if (strcasecmp(bool_words[i].text, text) == 0) {
            *(bool *)value_of(setting, values) = bool_words[i].value;
            return true;
        }
    }
    char quoted[80];
    return error_set(err, ERROR_CONFIG, "%s is not true or false; write yes or no", shown(text, quoted, sizeof quoted));
}

/* "a, b or c", each with `suffix`. */
static void list_choices(const char *const *choices, const char *suffix, char *ret, size_t size)
{
    size_t used = 0;
    ret[0] = '\0';
    for (size_t i = 0; choices[i] && used < size; i++) {
        const char *before = i == 0 ? "" : choices[i + 1] ? ", " : " or ";
        int n = snprintf(ret + used, size - used, "%s%s%s", before, choices[i], suffix);
        used += n > 0 ? (size_t)n : 0;
    }
}

static bool find_choice(const struct setting *setting, const char *text, int *ret, struct error *err)
{
    for (int i = 0; setting->choices[i]; i++) {
        if (strcmp(setting->choices[i], text) == 0) {
            *ret = i;
            return true;
        }
    }
    char quoted[80], list[200];
    const char *near = suggest(text, setting->choices);
    shown(text, quoted, sizeof quoted);
    list_choices(setting->choices, "", list, sizeof list);
    if (near)
        return error_set(err, ERROR_CONFIG, "%s is not %s; did you mean \"%s\"?", quoted, list, near);
    return error_set(err, ERROR_CONFIG, "%s is unknown; write %s", quoted, list);
}

static bool parse_choice(const struct setting *setting, const char *text, void *values, struct error *err)
{
    return find_choice(setting, text, value_of(setting, values), err);
}

/* ---- texts ---- */

static void store_text(const struct setting *setting, const char *text, void *values)
{
    char **value = value_of(setting, values);
    char *copy = memory_text(text);
    memory_wipe(*value);
    *value = copy;
}

static bool parse_text(const struct setting *setting, const char *text, void *values, struct error *err)
{
    int ignored;
    if (*text == '\0' && (!setting->fallback || *setting->fallback))
        return error_set(err, ERROR_CONFIG, "the value is empty; write one or leave the key out");
    if (setting->choices && !find_choice(setting, text, &ignored, err))
        return false;
    store_text(setting, text, values);
    return true;
}

static bool scheme_allowed(const struct setting *setting, const char *url, size_t scheme_size)
{
    for (size_t i = 0; setting->choices[i]; i++)
        if (strlen(setting->choices[i]) == scheme_size && strncasecmp(setting->choices[i], url, scheme_size) == 0)
            return true;
    return false;
}

static bool parse_url(const struct setting *setting, const char *text, void *values, struct error *err)
{
    char safe[128], quoted[80], list[120];
    setting_url_show(text, safe, sizeof safe);
    shown(safe, quoted, sizeof quoted);
    list_choices(setting->choices, "://", list, sizeof list);
    const char *colon = strstr(text, "://");
    if (!colon || colon == text)
        return error_set(err, ERROR_CONFIG, "%s is not a URL; write one that starts with %s", quoted, list);
    if (!scheme_allowed(setting, text, (size_t)(colon - text)))
        return error_set(err, ERROR_CONFIG, "%s has another scheme than %s", quoted, list);
    if (colon[3] == '\0')
        return error_set(err, ERROR_CONFIG, "%s names no host; write e.g. %s127.0.0.1", quoted, safe);
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            return error_set(err, ERROR_CONFIG, "%s has a space or control character in it; write it as %%%02X", quoted,
                             (unsigned)(unsigned char)*c);
    store_text(setting, text, values);
    return true;
}

/* ---- all kinds ---- */

static bool parse_map(const struct setting *setting, const char *text, void *values, struct error *err)
{
    (void)setting, (void)text, (void)values;
    return error_set(err, ERROR_CONFIG, "a single value cannot stand here; write { name: value, ... }");
}

static bool parse_list(const struct setting *setting, const char *text, void *values, struct error *err)
{
    (void)setting, (void)text, (void)values;
    return error_set(err, ERROR_CONFIG, "a single value cannot stand here; write a list: [one, another]");
}

static void free_text(const struct setting *setting, void *values)
{
    char **value = value_of(setting, values);
    memory_wipe(*value);
    *value = NULL;
}

static void free_map(const struct setting *setting, void *values)
{
    struct setting_map *map = value_of(setting, values);
    for (size_t i = 0; i < map->count; i++) {
        free(map->pairs[i].name);
        memory_wipe(map->pairs[i].value);
    }
    free(map->pairs);
    *map = (struct setting_map){0};
}

static void free_list(const struct setting *setting, void *values)
{
    struct setting_list *list = value_of(setting, values);
    for (size_t i = 0; i < list->count; i++)
        memory_wipe(list->texts[i]);
    free(list->texts);
    *list = (struct setting_list){0};
}

static const struct kind_row {
    bool (*parse)(const struct setting *setting, const char *text, void *values, struct error *err);
    void (*free)(const struct setting *setting, void *values); /* NULL: owns nothing */
    const char *name;                                          /* NULL: depends on the row */
} kinds[] = {
    [SETTING_TEXT] = {parse_text, free_text, "text"},
    [SETTING_SECRET] = {parse_text, free_text, "text, secret"},
    [SETTING_BOOL] = {parse_bool, NULL, "yes or no"},
    [SETTING_COUNT] = {parse_number, NULL, NULL},
    [SETTING_SIZE] = {parse_number, NULL, NULL},
    [SETTING_DURATION] = {parse_number, NULL, NULL},
    [SETTING_CHOICE] = {parse_choice, NULL, NULL},
    [SETTING_URL] = {parse_url, free_text, NULL},
    [SETTING_MAP] = {parse_map, free_map, "names with values"},
    [SETTING_LIST] = {parse_list, free_list, "a list of texts"},
    [SETTING_SECRETS] = {parse_list, free_list, "a list of secrets"},
};

bool setting_parse(const struct setting *setting, const char *text, void *values, struct error *err)
{
    return kinds[setting->kind].parse(setting, text, values, err);
}

void setting_map_put(const struct setting *setting, const char *name, const char *text, void *values)
{
    struct setting_map *map = value_of(setting, values);
    map->pairs = memory_resize(map->pairs, map->count + 1, sizeof *map->pairs);
    map->pairs[map->count++] = (struct setting_pair){memory_text(name), memory_text(text)};
}

bool setting_list_add(const struct setting *setting, const char *text, void *values, struct error *err)
{
    struct setting_list *list = value_of(setting, values);
    if (setting->check && !setting->check(text, err))
        return false;
    if (setting->max > 0 && (int64_t)list->count >= setting->max)
        return error_set(err, ERROR_CONFIG, "one too many: %" PRId64 " are the most; leave out the last", setting->max);
    list->texts = memory_resize(list->texts, list->count + 2, sizeof *list->texts);
    list->texts[list->count++] = memory_text(text);
    list->texts[list->count] = NULL;
    return true;
}

bool setting_is_secret(const struct setting *setting)
{
    return setting->kind == SETTING_SECRET || setting->kind == SETTING_SECRETS;
}

void setting_defaults(const struct setting *table, void *values)
{
    struct error err;
    for (const struct setting *row = table; row->name; row++) {
        if (row->fallback && !setting_parse(row, row->fallback, values, &err)) {
            fprintf(stderr, "pgcourier: bug: default of setting %s: %s\n", row->name, err.text);
            abort();
        }
    }
}

void setting_free(const struct setting *table, void *values)
{
    for (const struct setting *row = table; row->name; row++)
        if (kinds[row->kind].free)
            kinds[row->kind].free(row, values);
}

const struct setting *setting_find(const struct setting *table, const char *name)
{
    for (const struct setting *row = table; row->name; row++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

void setting_describe(const struct setting *setting, char *ret, size_t size)
{
    const struct number_kind *number = number_kind_of(setting->kind);
    if (number) {
        char range[80];
        format_range(setting, " to ", range, sizeof range);
        snprintf(ret, size, "%s, %s", number->name, range);
    } else if (setting->kind == SETTING_URL) {
        size_t used = (size_t)snprintf(ret, size, "a URL: ");
        list_choices(setting->choices, "://", ret + used, size - used);
    } else if (setting->choices) {
        list_choices(setting->choices, "", ret, size);
    } else {
        snprintf(ret, size, "%s", kinds[setting->kind].name);
    }
}

/* Without everything up to the last @ of the authority. Where a password holds an unescaped / the authority ends too
 * early and its "port" is not a number, and without :// nobody knows where it begins: then up to the last @ of all, as
 * showing too little beats showing the password. Without the query, too, where receivers want their tokens. */
void setting_url_show(const char *url, char *ret, size_t size)
{
    const char *rest = strstr(url, "://");
    rest = rest ? rest + 3 : url;
    size_t authority = strcspn(rest, "/?#");
    const char *at = memrchr(rest, '@', authority);
    if (!at) {
        const char *colon = memrchr(rest, ':', authority);
        bool port = colon && strspn(colon + 1, "0123456789") == (size_t)(rest + authority - colon - 1);
        bool misread = rest == url || (colon && !port && *rest != '[');
        at = misread ? strrchr(rest, '@') : NULL;
    }
    const char *from = at ? at + 1 : rest;
    snprintf(ret, size, "%.*s%.*s", (int)(rest - url), url, (int)strcspn(from, "?"), from);
}
