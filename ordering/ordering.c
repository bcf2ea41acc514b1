#include "ordering/ordering.h"

static const struct {
    const char *name;
    const struct ordering_type *type;
} types[] = {{"per_key", &ordering_per_key}, {"lease", &ordering_per_key}, {"unordered", &ordering_unordered}};

const struct ordering_type *ordering_type_find(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].type;
    return NULL;
}
