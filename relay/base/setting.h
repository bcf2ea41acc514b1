/* relay/base/setting.h -- one row a configuration key.
 *
 * The same rows feed the parser, check-config, docs/configuration.md and the sinks: a module lists its keys in a
 * table, says where in its own struct each value goes, and never sees YAML. */
#ifndef RELAY_BASE_SETTING_H
#define RELAY_BASE_SETTING_H

#include "relay/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum setting_kind {
    SETTING_TEXT,     /* char *            any text */
    SETTING_SECRET,   /* char *            like TEXT; `NAME_file:` reads it from a file; never printed */
    SETTING_BOOL,     /* bool              true | false | yes | no | on | off */
    SETTING_COUNT,    /* int64_t           a whole number between min and max */
    SETTING_SIZE,     /* int64_t, bytes    64kB, 1MB (powers of 1024) or a plain number */
    SETTING_DURATION, /* int64_t, us       250us, 10ms, 1s, 5m, 2h, 1d */
    SETTING_CHOICE,   /* int               one of `choices`, stored as its index */
    SETTING_URL,      /* char *            checked against `choices` as the allowed schemes; may carry a password,
                       *                   so it is shown without its userinfo */
    SETTING_MAP       /* struct setting_map  text to text, keys as they come (dots allowed) */
};

struct setting_pair {
    char *name, *value;
};

struct setting_map {
    struct setting_pair *pairs;
    size_t count;
};

struct setting {
    const char *name; /* as in the file */
    enum setting_kind kind;
    size_t offset;        /* of the value in the module's struct */
    const char *fallback; /* default, as one would write it in the file; NULL: absent (NULL, 0, empty) */
    bool required;
    int64_t min, max;           /* COUNT, SIZE (bytes), DURATION (us), both inclusive; 0,0 = any >= 0 */
    const char *const *choices; /* CHOICE and URL; NULL after the last */
    const char *help;           /* one line for the documentation */
};

#endif
