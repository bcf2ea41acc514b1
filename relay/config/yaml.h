/* relay/config/yaml.h -- a YAML document as a tree of texts with places. The only module that knows libfyaml.
 *
 *   yaml_parse -> walk the nodes -> yaml_free
 *
 * Scalars stay the text that was written: `no` is "no", 1.10 is "1.10". Key names may hold dots. A repeated key, a
 * second document and anything that is not UTF-8 are errors. Anchors, aliases and merge keys (<<) are resolved. */
#pragma once

#include "relay/base/error.h"

#include <stddef.h>

enum yaml_kind {
    YAML_SCALAR,
    YAML_NULL, /* nothing after the colon, ~ or null; quoted they are scalars */
    YAML_MAP,
    YAML_LIST /* its items are named by their number, from 0 */
};

struct yaml_node;

struct yaml_pair {
    const char *name;
    int line, column; /* of the name */
    const struct yaml_node *value;
};

struct yaml_node {
    enum yaml_kind kind;
    int line, column;        /* counted from 1; a map's, list's or null's are those of its name */
    const char *text;        /* YAML_SCALAR; never NULL there, holds no NUL byte */
    struct yaml_pair *pairs; /* YAML_MAP and YAML_LIST, in the order of the file */
    size_t count;            /* of pairs */
};

struct yaml;

/* `size` bytes at `text`, followed by a NUL, must live and stay as they are until yaml_free(). NULL and *err
 * (ERROR_CONFIG, "NAME:LINE:COLUMN: ...") on failure. An empty document is a map without pairs. */
struct yaml *yaml_parse(const char *name, const char *text, size_t size, struct error *err) MUST_CHECK;
void yaml_free(struct yaml *yaml); /* NULL is a no-op; overwrites the texts first */

const struct yaml_node *yaml_root(const struct yaml *yaml);
const struct yaml_pair *yaml_find(const struct yaml_node *map, const char *name); /* NULL if there is none */

const char *yaml_kind_name(enum yaml_kind kind); /* "a list", "a mapping", "a single value", "nothing" */
