#include "relay/config/config_expand.h"

#include "relay/base/arena.h"
#include "relay/base/span.h"

#include <ctype.h>
#include <stdlib.h>

#define NAME_MAX_BYTES 128

struct growing {
    char *text;
    size_t size;
};

static void append(struct growing *out, struct span bytes)
{
    /* Not resized: that may leave a copy behind. */
    char *longer = memory_new(out->size + bytes.size + 1);
    if (out->text)
        memcpy(longer, out->text, out->size);
    memcpy(longer + out->size, bytes.data, bytes.size);
    memory_wipe(out->text);
    out->text = longer;
    out->size += bytes.size;
}

static size_t name_length(const char *text)
{
    size_t size = 0;
    while (isalnum((unsigned char)text[size]) || text[size] == '_')
        size++;
    return isdigit((unsigned char)text[0]) ? 0 : size;
}

/* `text` begins with ${. Appends what it stands for; NULL after filling *err, else where to go on. */
static const char *expand_reference(const char *text, struct growing *out, struct error *err)
{
    const char *name = text + 2, *end = strchr(name, '}');
    size_t size = name_length(name);
    char copy[NAME_MAX_BYTES];
    if (!end) {
        error_set(err, ERROR_CONFIG, "a ${ has no } after it; write ${NAME}, or $$ for a dollar sign");
        return NULL;
    }
    bool has_default = strncmp(name + size, ":-", 2) == 0;
    if (size == 0 || size >= sizeof copy || (!has_default && name + size != end)) {
        error_set(err, ERROR_CONFIG, "this ${...} cannot be read; write ${NAME} or ${NAME:-default}");
        return NULL;
    }
    memcpy(copy, name, size);
    copy[size] = '\0';
    const char *value = getenv(copy);
    if (has_default && (!value || !*value)) {
        append(out, (struct span){name + size + 2, (size_t)(end - name) - size - 2});
        return end + 1;
    }
    if (!value) {
        error_set(err, ERROR_CONFIG, "the environment variable %s is not set; set it or write ${%s:-default}", copy,
                  copy);
        return NULL;
    }
    append(out, span_of(value));
    return end + 1;
}

char *config_expand(const char *text, struct error *err)
{
    struct growing out = {NULL, 0};
    append(&out, SPAN_LITERAL(""));
    const char *at = text;
    while (at && *at) {
        size_t plain = strcspn(at, "$");
        append(&out, (struct span){at, plain});
        at += plain;
        if (*at == '\0')
            break;
        if (at[1] == '$') {
            append(&out, SPAN_LITERAL("$"));
            at += 2;
        } else if (at[1] == '{') {
            at = expand_reference(at, &out, err);
        } else {
            error_set(err, ERROR_CONFIG, "a $ stands alone; write ${NAME} for a variable, or $$ for a dollar sign");
            at = NULL;
        }
    }
    if (at)
        return out.text;
    memory_wipe(out.text);
    return NULL;
}
