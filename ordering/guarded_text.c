#include "ordering/guarded_text.h"

#include <stdlib.h>

bool guarded_text_init(struct guarded_text *text, const char *template, const struct sql_variable *variables,
                       const struct sql_variable *guarded, struct error *err)
{
    *text = (struct guarded_text){.plain = sql_render(template, variables, err)};
    if (!text->plain || (guarded && !(text->guarded = sql_render(template, guarded, err))))
        return false;
    /* Prepared statements are known by where their texts are, and on the server by what they say. */
    if (guarded && strcmp(text->guarded, text->plain) == 0) {
        free(text->guarded);
        text->guarded = NULL;
    }
    return true;
}

void guarded_text_done(struct guarded_text *text)
{
    free(text->plain);
    free(text->guarded);
}

const char *guarded_text_of(const struct guarded_text *text, bool guarded)
{
    return guarded && text->guarded ? text->guarded : text->plain;
}
