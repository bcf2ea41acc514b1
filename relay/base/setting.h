/* relay/base/setting.h -- one row a configuration key.
 *
 *   setting_defaults -> setting_parse (or setting_map_put, setting_list_add) for each key that is given -> setting_free
 *
 * The same rows feed the parser, check-config, docs/configuration.md and the sinks: a module lists its keys in a
 * table, says where in its own struct each value goes, and never sees YAML. */
#pragma once

#include "relay/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum setting_kind {
    SETTING_TEXT,   /* char *            any text; one of `choices` if there are any; empty only if `fallback` is "" */
    SETTING_SECRET, /* char *            like TEXT; `NAME_file:` reads it from a file; never printed */
    SETTING_BOOL,   /* bool              true | false | yes | no | on | off */
    SETTING_COUNT,  /* int64_t           a whole number between min and max */
    SETTING_SIZE,   /* int64_t, bytes    64kB, 1MB (powers of 1024) or a plain number */
    SETTING_DURATION, /* int64_t, us       250us, 10ms, 1s, 5m, 2h, 1d */
    SETTING_CHOICE,   /* int               one of `choices`, stored as its index */
    SETTING_URL,      /* char *            starts with one of `choices`, the allowed schemes; may carry a password,
                       *                   so it is shown without its userinfo */
    SETTING_MAP,      /* struct setting_map  text to text, keys as they come (dots allowed) */
    SETTING_LIST,     /* struct setting_list texts, at least one; they may be empty */
    SETTING_SECRETS   /* struct setting_list like LIST; `NAME_file:` reads one a line from a file; never printed */
};

struct setting_pair {
    char *name, *value;
};

struct setting_map {
    struct setting_pair *pairs;
    size_t count;
};

struct setting_list {
    char **texts; /* NULL after the last */
    size_t count;
};

struct setting {
    const char *name; /* as in the file */
    enum setting_kind kind;
    size_t offset;        /* of the value in the module's struct */
    const char *fallback; /* default, as one would write it in the file; NULL: absent (NULL, 0, empty) */
    bool required;
    int64_t min,
        max; /* COUNT, SIZE (bytes), DURATION (us), both inclusive; max 0 = no upper bound. SECRETS: how many */
    const char *const *choices; /* CHOICE, URL and TEXT; NULL after the last */
    const char *help;           /* one line for the documentation */

    /* SECRETS: what each has to be; *err says what is wrong and what to write, and does not show it. NULL: anything */
    bool (*check)(const char *text, struct error *err);
};

/* A row of a table: name, kind, offset and fallback in this order, the others by name. Tables end with a row whose name
 * is NULL; `values` is the module's struct. */

/* Fills a zeroed `values` with the fallbacks. A fallback that does not parse is a bug and aborts. */
void setting_defaults(const struct setting *table, void *values);

/* Checks `text` and stores what it means, copied, in place of the old value. On false `values` is untouched and *err
 * (ERROR_CONFIG) says what is wrong and what to write instead, without naming the key; it never shows a secret. Not for
 * SETTING_MAP, SETTING_LIST and SETTING_SECRETS. */
bool setting_parse(const struct setting *setting, const char *text, void *values, struct error *err) MUST_CHECK;

/* Adds one pair, copied, to a SETTING_MAP. */
void setting_map_put(const struct setting *setting, const char *name, const char *text, void *values);

/* Adds one text, copied, to a SETTING_LIST or SETTING_SECRETS. On false, when it is not good or one too many, `values`
 * is untouched and *err is as with setting_parse(). */
bool setting_list_add(const struct setting *setting, const char *text, void *values, struct error *err) MUST_CHECK;

/* May the value be read from `NAME_file`? */
bool setting_is_secret(const struct setting *setting);

/* Frees what the rows own and makes it absent; secrets, URLs and maps are overwritten first. */
void setting_free(const struct setting *table, void *values);

const struct setting *setting_find(const struct setting *table, const char *name); /* NULL if there is none */

/* What may be written, for people: "a duration from 1ms to 1h", "delete or archive". At most `size` bytes. */
void setting_describe(const struct setting *setting, char *ret, size_t size);

/* `url` without its userinfo and its query, for messages and logs. At most `size` bytes. */
void setting_url_show(const char *url, char *ret, size_t size);
