#include "ordering/ordering.h"

static const struct ordering_type *const types[] = {&ordering_per_key};

const struct ordering_type *ordering_type_find(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i]->name, name) == 0)
            return types[i];
    return NULL;
}
