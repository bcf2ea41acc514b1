/* relay/config/config_read.h -- from YAML nodes to the modules' structs, by tables of settings. */
#pragma once

#include "relay/base/setting.h"
#include "relay/config/yaml.h"

/* Where in the file, and which key. */
struct config_place {
    const char *file;
    int line, column;
    char path[200]; /* "queues.orders.retry.base", "" at the top */
};

/* Puts "FILE:LINE:COLUMN: PATH: " before the formatted text. Returns false; ERROR_CONFIG. */
bool config_error(const struct config_place *place, struct error *err, const char *format, ...) PRINTF_LIKE(3, 4);

/* The place of the value of key `name` in `map`, which is at `place`; that, with the longer path, if it is not given.
 */
struct config_place config_place_of(const struct config_place *place, const struct yaml_node *map, const char *name);

/* One row for each table of keys that a mapping may hold. */
struct config_keys {
    const char *group;              /* the keys stand in a mapping under this key; NULL: in the mapping itself */
    const struct setting *settings; /* NULL with a group: known, but read by the caller */
    void *values;
};

/* Reads all keys of `map` into the structs of `keys`, whose last row is all NULL. The structs hold their defaults
 * before. Wrong values, unknown and missing keys are errors; what was stored before one stays and is freed by the
 * caller. */
bool config_read(const struct config_place *place, const struct yaml_node *map, const struct config_keys *keys,
                 struct error *err) MUST_CHECK;

/* Reads one value, which is at `place`. */
bool config_read_setting(const struct config_place *place, const struct yaml_node *node, const struct setting *setting,
                         void *values, struct error *err) MUST_CHECK;

/* False and *err unless `node` is a mapping; `wanted` says of what, e.g. "names to queues". */
bool config_need_map(const struct config_place *place, const struct yaml_node *node, const char *wanted,
                     struct error *err) MUST_CHECK;
