/* sinks/exec/exec_verdict.h -- what the end of a command means for its events. Pure. */
#pragma once

#include "relay/base/setting.h"
#include "sinks/delivery.h"

#define EXEC_CODES 256

struct exec_meaning {
    const char *name; /* in the configuration; NULL: cannot be written there */
    enum verdict verdict;
    enum error_kind kind; /* ERROR_NONE with VERDICT_ACKED */
    const char *reason;   /* "" where the code says it all */
};

/* What each exit code means. */
struct exec_codes {
    const struct exec_meaning *of[EXEC_CODES];
};

/* The defaults, changed by the pairs of `map`: a code from 1 to 255, or `other`, to one of the names. False and *err
 * (ERROR_CONFIG) for anything else; *ret is then undefined. */
bool exec_codes_init(struct exec_codes *ret, const struct setting_map *map, struct error *err) MUST_CHECK;

/* Nothing was run because of this errno. */
struct exec_meaning exec_verdict_errno(int cause);
