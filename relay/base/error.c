#include "relay/base/error.h"

#include "relay/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* UTF-8, whatever was put into it and wherever that was cut: it becomes a parameter of a settlement. */
static void one_line(char *text)
{
    size_t end = strlen(text);
    for (size_t i = 0, bytes; i < end; i += bytes) {
        bytes = utf8_char((struct span){text + i, end - i});
        if (bytes == 0) {
            text[i] = '?';
            bytes = 1;
        } else if ((unsigned char)text[i] < ' ' || text[i] == 0x7f) {
            text[i] = ' ';
        }
    }
    while (end > 0 && text[end - 1] == ' ')
        text[--end] = '\0';
}

bool error_set(struct error *err, enum error_kind kind, const char *format, ...)
{
    if (!err)
        return false;
    /* Formatted elsewhere first: an argument may be the old text of the same error. */
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    one_line(text);
    err->kind = kind;
    memcpy(err->text, text, sizeof text);
    return false;
}

bool error_prefix(struct error *err, const char *format, ...)
{
    if (!err)
        return false;
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if ((size_t)used < sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, ": %s", err->text);
    one_line(text);
    memcpy(err->text, text, sizeof text);
    return false;
}

const char *error_kind_name(enum error_kind kind)
{
    static const char *const names[] = {
        [ERROR_NONE] = "none",
        [ERROR_USAGE] = "usage",
        [ERROR_CONFIG] = "config",
        [ERROR_PERMISSION] = "permission",
        [ERROR_UNREACHABLE] = "unreachable",
        [ERROR_OVERLOADED] = "overloaded",
        [ERROR_ROUTE] = "route",
        [ERROR_TIMEOUT] = "timeout",
        [ERROR_REFUSED] = "refused",
        [ERROR_BYSTANDER] = "bystander",
        [ERROR_CONFLICT] = "conflict",
        [ERROR_LOST_CLAIM] = "lost_claim",
        [ERROR_RESOURCE] = "resource",
        [ERROR_PROTOCOL] = "protocol",
        [ERROR_INTERNAL] = "internal",
    };
    return (size_t)kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}
