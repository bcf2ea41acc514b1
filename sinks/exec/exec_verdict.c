#include "sinks/exec/exec_verdict.h"

#include <errno.h>
#include <stdlib.h>

/* What may be written in `exit_codes`. */
static const struct exec_meaning meanings[] = {
    {"ack", VERDICT_ACKED, ERROR_NONE, ""},
    {"retry", VERDICT_RETRY, ERROR_REFUSED, ""},
    {"reject", VERDICT_REJECTED, ERROR_REFUSED, ""},
    /* The destination's fault, unless others succeed meanwhile. */
    {"unavailable", VERDICT_RETRY, ERROR_OVERLOADED, ""},
    /* What shells, env and the like answer for a program that is not there: no reason to give up event after event. */
    {NULL, VERDICT_RETRY, ERROR_OVERLOADED, ", which shells use for a program that cannot be run"},
};

enum { ACK, RETRY, REJECT, UNAVAILABLE, NOT_RUN, NAMES = NOT_RUN };

static const struct {
    int code, meaning;
} defaults[] = {
    {0, ACK},
    {75, RETRY}, /* EX_TEMPFAIL of sysexits.h */
    {126, NOT_RUN},
    {127, NOT_RUN},
};

static const struct exec_meaning *meaning_find(const char *name)
{
    for (size_t i = 0; i < NAMES; i++)
        if (strcmp(meanings[i].name, name) == 0)
            return &meanings[i];
    return NULL;
}

/* Every code that has no meaning of its own. */
static void set_others(struct exec_codes *codes, const struct exec_meaning *meaning)
{
    for (int code = 0; code < EXEC_CODES; code++)
        if (!codes->of[code])
            codes->of[code] = meaning;
}

static bool set_code(struct exec_codes *codes, const struct setting_pair *pair, const struct exec_meaning *meaning,
                     struct error *err)
{
    char *end;
    long code = strtol(pair->name, &end, 10);
    if (*pair->name < '0' || *pair->name > '9' || *end || code >= EXEC_CODES)
        return error_set(err, ERROR_CONFIG, "exit_codes: \"%.40s\" is no exit code; write 1 to 255, or other",
                         pair->name);
    if (code == 0)
        return error_set(err, ERROR_CONFIG, "exit_codes: 0 always means that the event is delivered; take it out");
    codes->of[code] = meaning;
    return true;
}

bool exec_codes_init(struct exec_codes *ret, const struct setting_map *map, struct error *err)
{
    const struct exec_meaning *others = &meanings[REJECT];
    *ret = (struct exec_codes){0};
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
        ret->of[defaults[i].code] = &meanings[defaults[i].meaning];
    for (size_t i = 0; i < map->count; i++) {
        const struct setting_pair *pair = &map->pairs[i];
        const struct exec_meaning *meaning = meaning_find(pair->value);
        if (!meaning)
            return error_set(err, ERROR_CONFIG,
                             "exit_codes: %.40s: \"%.40s\" is unknown; write ack, retry, reject or unavailable",
                             pair->name, pair->value);
        if (strcmp(pair->name, "other") == 0)
            others = meaning;
        else if (!set_code(ret, pair, meaning, err))
            return false;
    }
    set_others(ret, others);
    return true;
}

struct exec_meaning exec_verdict_errno(int cause)
{
    static const struct {
        int cause;
        struct exec_meaning meaning;
    } rules[] = {
        /* One argument or variable of 128 kB is the limit: an event's key is part of them. */
        {E2BIG, {NULL, VERDICT_REJECTED, ERROR_REFUSED, "; its key, type or destination is too long for a variable"}},
        {ENOENT,
         {NULL, VERDICT_RETRY, ERROR_UNREACHABLE, "; is it there, and the interpreter that its first line names?"}},
        {ENOEXEC, {NULL, VERDICT_RETRY, ERROR_UNREACHABLE, "; begin a script with #!/bin/sh or the like"}},
        {EACCES, {NULL, VERDICT_RETRY, ERROR_UNREACHABLE, "; let this user execute it and enter its directory"}},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].cause == cause)
            return rules[i].meaning;
    /* Processes, memory, descriptors: short for all of them. */
    return (struct exec_meaning){NULL, VERDICT_RETRY, ERROR_UNREACHABLE, ""};
}
