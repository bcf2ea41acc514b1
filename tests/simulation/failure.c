#include "tests/simulation/failure.h"

#include <string.h>

const struct failure failures[] = {{"40001", false}, {"40P01", false}, {"55P03", false}, {"57014", false},
                                   {"53200", false}, {"26000", false}, {"XX000", false}, {"58030", false},
                                   {"42501", false}, {"57P01", true},  {"25P03", true},  {"53300", true},
                                   {"0A000", false}, {"55006", false}};

const size_t failure_count = sizeof failures / sizeof *failures;

bool failure_ends_session(const char *sqlstate)
{
    for (size_t i = 0; sqlstate && i < failure_count; i++)
        if (strcmp(failures[i].sqlstate, sqlstate) == 0)
            return failures[i].fatal;
    return false;
}
