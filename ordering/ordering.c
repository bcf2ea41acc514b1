#include "ordering/ordering.h"

#include "sql_text.h"

static const struct {
    const char *name;
    const struct ordering_type *type;
} types[] = {{"per_key", &ordering_per_key}, {"lease", &ordering_per_key}, {"unordered", &ordering_unordered}};

struct statement ordering_guard(const int64_t *ids, size_t count, struct arena *arena)
{
    struct statement ret = statement_of(sql_unreadable_set);
    statement_add_ids(&ret, arena, ids, count);
    return ret;
}

const struct ordering_type *ordering_type_find(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].type;
    return NULL;
}
