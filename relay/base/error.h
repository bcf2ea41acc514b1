/* relay/base/error.h -- why something failed, as a value.
 *
 * A function that can fail returns bool and takes `struct error *err` last; on false it has filled
 * *err. Callers branch on err->kind and show err->text to people, never the other way round. */
#pragma once

#include <stdbool.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

enum error_kind {
    ERROR_NONE = 0,
    ERROR_USAGE,       /* the command line is wrong */
    ERROR_CONFIG,      /* the configuration, or what it points at, is wrong; retrying cannot help */
    ERROR_PERMISSION,  /* the other side knows us and refuses */
    ERROR_UNREACHABLE, /* the other side is not there: no connection, or it broke */
    ERROR_OVERLOADED,  /* the other side answered that it cannot take anything now */
    ERROR_ROUTE,       /* this topic, stream or URL does not exist or may not be used by us */
    ERROR_TIMEOUT,     /* no answer in time */
    ERROR_REFUSED,     /* this one event was refused */
    ERROR_BYSTANDER,   /* nothing is wrong with it: it fell with another one */
    ERROR_CONFLICT,    /* a transaction lost a race (serialization, deadlock, lock timeout) */
    ERROR_LOST_CLAIM,  /* what was claimed is not ours any more, or is gone */
    ERROR_RESOURCE,    /* memory, descriptors, lock table, disk */
    ERROR_PROTOCOL,    /* the other side said something that makes no sense */
    ERROR_INTERNAL     /* a bug of ours */
};

#define ERROR_TEXT_MAX 480

struct error {
    enum error_kind kind;
    char text[ERROR_TEXT_MAX]; /* one line, no trailing newline; cut, never overrun */
};

/* Fills *err (NULL is allowed) and returns false, so that `return error_set(...)` reads as it acts.
 * Line breaks and control characters in the result become spaces: an error is one line. */
bool error_set(struct error *err, enum error_kind kind, const char *format, ...) PRINTF_LIKE(3, 4);

/* Puts "`format`: " before the text that is already there; the kind stays. Returns false. */
bool error_prefix(struct error *err, const char *format, ...) PRINTF_LIKE(2, 3);

const char *error_kind_name(enum error_kind kind); /* "unreachable", "refused", ...; static */
