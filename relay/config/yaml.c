#include "relay/config/yaml.h"

#include "relay/base/arena.h"
#include "relay/base/utf8.h"

#include <libfyaml.h>
#include <stdlib.h>

/* An alias is copied where it stands, so a few lines can name a huge tree, or one that holds itself. */
#define NODES_MAX 20000
#define DEPTH_MAX 32

struct yaml {
    struct arena *arena;
    const struct yaml_node *root;
};

/* One conversion from libfyaml's tree to ours. */
struct reader {
    const char *name;
    struct arena *arena;
    size_t nodes;
    struct error *err;
};

struct place {
    int line, column;
};

static bool fail(struct reader *r, struct place place, const char *text)
{
    return error_set(r->err, ERROR_CONFIG, "%s:%d:%d: %s", r->name, place.line, place.column, text);
}

/* A value that is left out stands nowhere, though libfyaml from 0.8 on says that it stands behind its colon. */
static bool is_left_out(struct fy_node *node)
{
    size_t size = 0;
    return fy_node_get_style(node) == FYNS_PLAIN && (!fy_node_get_scalar(node, &size) || size == 0);
}

static struct place place_of(struct fy_node *node, struct place otherwise)
{
    if (!fy_node_is_scalar(node) || is_left_out(node))
        return otherwise;
    struct fy_token *token = fy_node_get_scalar_token(node);
    const struct fy_mark *mark = token ? fy_token_start_mark(token) : NULL;
    return mark ? (struct place){mark->line + 1, mark->column + 1} : otherwise;
}

/* Where the first scalar in `node` stands: only scalars have places. */
static struct place place_inside(struct fy_node *node, struct place otherwise)
{
    void *iterator = NULL;
    for (int depth = 0; node && depth < DEPTH_MAX && !fy_node_is_scalar(node); depth++, iterator = NULL) {
        struct fy_node_pair *pair = fy_node_is_mapping(node) ? fy_node_mapping_iterate(node, &iterator) : NULL;
        node = pair                        ? fy_node_pair_key(pair)
               : fy_node_is_sequence(node) ? fy_node_sequence_iterate(node, &iterator)
                                           : NULL;
    }
    return node ? place_of(node, otherwise) : otherwise;
}

static struct yaml_node *read_node(struct reader *r, struct fy_node *node, struct place place, int depth);

static bool is_null(struct fy_node *node, struct span text)
{
    if (fy_node_get_style(node) != FYNS_PLAIN)
        return false;
    return text.size == 0 || span_equal(text, SPAN_LITERAL("~")) || span_equal(text, SPAN_LITERAL("null"));
}

static bool read_scalar(struct reader *r, struct fy_node *node, struct yaml_node *ret)
{
    size_t size = 0;
    const char *data = fy_node_get_scalar(node, &size);
    struct span text = data ? (struct span){data, size} : SPAN_LITERAL("");
    if (memchr(text.data, '\0', text.size))
        return fail(r, (struct place){ret->line, ret->column}, "this text holds a NUL character; take it out");
    ret->kind = is_null(node, text) ? YAML_NULL : YAML_SCALAR;
    ret->text = arena_copy(r->arena, text).data;
    return true;
}

static void add_pair(struct reader *r, struct yaml_node *map, struct yaml_pair pair)
{
    /* Doubling from a power of two; the arena keeps what is outgrown until the document goes. */
    if ((map->count & (map->count - 1)) == 0) {
        struct yaml_pair *pairs = arena_array(r->arena, map->count ? map->count * 2 : 1, sizeof *pairs);
        if (map->count)
            memcpy(pairs, map->pairs, map->count * sizeof *pairs);
        map->pairs = pairs;
    }
    map->pairs[map->count++] = pair;
}

/* NOLINTBEGIN(misc-no-recursion): no deeper than DEPTH_MAX. */
static bool read_pair(struct reader *r, struct fy_node_pair *from, struct yaml_node *map, int depth)
{
    struct fy_node *key = fy_node_pair_key(from), *value = fy_node_pair_value(from);
    struct place around = {map->line, map->column};
    if (!key || !fy_node_is_scalar(key) || fy_node_is_alias(key))
        return fail(r, place_inside(key, around), "a name in this mapping is not a plain text; write NAME: VALUE");
    struct place place = place_of(key, around);
    struct yaml_node name = {.line = place.line, .column = place.column};
    if (!read_scalar(r, key, &name))
        return false;
    const struct yaml_pair *twice = yaml_find(map, name.text);
    if (twice)
        return error_set(r->err, ERROR_CONFIG, "%s:%d:%d: \"%s\" is already given in line %d; remove one of the two",
                         r->name, place.line, place.column, name.text, twice->line);
    struct yaml_node *node = read_node(r, value, place, depth + 1);
    if (node)
        add_pair(r, map, (struct yaml_pair){name.text, place.line, place.column, node});
    return node != NULL;
}

/* `<<: *base` stands for base's pairs, except those that are given beside it. */
static bool merge_pairs(struct reader *r, struct yaml_node *map)
{
    const struct yaml_pair *merge = yaml_find(map, "<<");
    if (!merge)
        return true;
    const struct yaml_node *base = merge->value;
    if (base->kind != YAML_MAP)
        return fail(r, (struct place){base->line, base->column}, "<< takes one mapping; write <<: *NAME");
    struct yaml_node merged = {.count = 0};
    for (size_t i = 0; i < map->count; i++)
        if (&map->pairs[i] != merge)
            add_pair(r, &merged, map->pairs[i]);
    for (size_t i = 0; i < base->count; i++)
        if (!yaml_find(&merged, base->pairs[i].name))
            add_pair(r, &merged, base->pairs[i]);
    map->pairs = merged.pairs;
    map->count = merged.count;
    return true;
}

static bool read_map(struct reader *r, struct fy_node *node, struct yaml_node *ret, int depth)
{
    void *iterator = NULL;
    struct fy_node_pair *pair;
    ret->kind = YAML_MAP;
    while ((pair = fy_node_mapping_iterate(node, &iterator)))
        if (!read_pair(r, pair, ret, depth))
            return false;
    return merge_pairs(r, ret);
}

static bool read_list(struct reader *r, struct fy_node *node, struct yaml_node *ret, int depth)
{
    void *iterator = NULL;
    struct fy_node *item;
    ret->kind = YAML_LIST;
    while ((item = fy_node_sequence_iterate(node, &iterator))) {
        const struct yaml_node *value = read_node(r, item, (struct place){ret->line, ret->column}, depth + 1);
        if (!value)
            return false;
        const char *number = arena_printf(r->arena, "%zu", ret->count);
        add_pair(r, ret, (struct yaml_pair){number, value->line, value->column, value});
    }
    return true;
}

/* NULL after filling r->err. To libfyaml a node that is NULL is a plain scalar without text. */
static struct yaml_node *read_node(struct reader *r, struct fy_node *node, struct place place, int depth)
{
    if (fy_node_is_alias(node)) {
        place = place_of(node, place);
        node = fy_node_resolve_alias(node);
        if (!node) {
            fail(r, place, "this alias has no anchor; write &NAME before the value it stands for");
            return NULL;
        }
    }
    if (++r->nodes > NODES_MAX || depth > DEPTH_MAX) {
        fail(r, place, "too deep or too large for a configuration; look for an alias inside its own anchor");
        return NULL;
    }
    struct yaml_node *ret = arena_alloc(r->arena, sizeof *ret);
    place = place_of(node, place);
    *ret = (struct yaml_node){.kind = YAML_NULL, .line = place.line, .column = place.column};
    bool good = true;
    if (fy_node_is_mapping(node))
        good = read_map(r, node, ret, depth);
    else if (fy_node_is_sequence(node))
        good = read_list(r, node, ret, depth);
    else
        good = read_scalar(r, node, ret);
    return good ? ret : NULL;
}
/* NOLINTEND(misc-no-recursion) */

/* libfyaml skips over what is not UTF-8 and leaves a hole there, so that is looked at first. */
static bool check_text(struct reader *r, struct span text)
{
    struct place place = {1, 1};
    while (text.size) {
        size_t size = utf8_char(text);
        if (size == 0)
            return fail(r, place, "this byte is not UTF-8; save the file as UTF-8");
        if (*text.data == '\0')
            return fail(r, place, "this is a NUL byte; is it a text file?");
        place.column = *text.data == '\n' ? 1 : place.column + 1;
        place.line += *text.data == '\n';
        text = (struct span){text.data + size, text.size - size};
    }
    return true;
}

static bool report(struct reader *r, struct fy_diag *diag)
{
    static const struct fy_diag_error unknown = {.msg = "it cannot be read", .line = 1, .column = 1};
    void *iterator = NULL;
    const struct fy_diag_error *found = fy_diag_errors_iterate(diag, &iterator);
    found = found ? found : &unknown;
    return error_set(r->err, ERROR_CONFIG, "%s:%d:%d: not YAML: %s; check the quotes and the indentation here", r->name,
                     found->line, found->column, found->msg);
}

static bool read_document(struct reader *r, struct fy_parser *parser, struct fy_diag *diag,
                          const struct yaml_node **ret)
{
    static const struct yaml_node nothing = {.kind = YAML_MAP, .line = 1, .column = 1};
    bool good = false;
    struct fy_document *second = NULL, *document = fy_parse_load_document(parser);
    if (document)
        second = fy_parse_load_document(parser);
    if (fy_parser_get_stream_error(parser)) {
        report(r, diag);
    } else if (second) {
        fail(r, place_inside(fy_document_root(second), (struct place){1, 1}),
             "a second document starts here; put everything into one and take out the --- line");
    } else {
        struct fy_node *root = document ? fy_document_root(document) : NULL;
        *ret = root ? read_node(r, root, (struct place){1, 1}, 0) : &nothing;
        good = *ret != NULL;
    }
    if (second)
        fy_parse_document_destroy(parser, second);
    if (document)
        fy_parse_document_destroy(parser, document);
    return good;
}

struct yaml *yaml_parse(const char *name, const char *text, size_t size, struct error *err)
{
    struct yaml *yaml = memory_new(sizeof *yaml);
    yaml->arena = arena_new();
    struct reader reader = {.name = name, .arena = yaml->arena, .err = err};
    struct fy_diag_cfg diag_config;
    fy_diag_cfg_default(&diag_config);
    diag_config.fp = NULL;
    struct fy_diag *diag = fy_diag_create(&diag_config);
    /* Repeated keys are found here, where the first one's line is known. */
    struct fy_parse_cfg config = {.flags = FYPCF_QUIET | FYPCF_DEFAULT_VERSION_AUTO | FYPCF_JSON_NONE |
                                           FYPCF_DISABLE_MMAP_OPT | FYPCF_ALLOW_DUPLICATE_KEYS,
                                  .diag = diag};
    struct fy_parser *parser = NULL;
    bool good = false;
    if (!check_text(&reader, (struct span){text, size}))
        goto done;
    if (diag) {
        fy_diag_set_collect_errors(diag, true);
        parser = fy_parser_create(&config);
    }
    if (!parser || fy_parser_set_string(parser, text, size) != 0) {
        error_set(err, ERROR_RESOURCE, "%s: libfyaml could not start", name);
        goto done;
    }
    good = read_document(&reader, parser, diag, &yaml->root);
done:
    if (parser)
        fy_parser_destroy(parser);
    if (diag)
        fy_diag_destroy(diag);
    if (good)
        return yaml;
    yaml_free(yaml);
    return NULL;
}

void yaml_free(struct yaml *yaml)
{
    if (!yaml)
        return;
    arena_wipe(yaml->arena);
    arena_free(yaml->arena);
    free(yaml);
}

const struct yaml_node *yaml_root(const struct yaml *yaml)
{
    return yaml->root;
}

const struct yaml_pair *yaml_find(const struct yaml_node *map, const char *name)
{
    for (size_t i = 0; i < map->count; i++)
        if (strcmp(map->pairs[i].name, name) == 0)
            return &map->pairs[i];
    return NULL;
}

const char *yaml_kind_name(enum yaml_kind kind)
{
    static const char *const names[] = {
        [YAML_SCALAR] = "a single value", [YAML_NULL] = "nothing", [YAML_MAP] = "a mapping", [YAML_LIST] = "a list"};
    return names[kind];
}
