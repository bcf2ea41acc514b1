#include "relay/commands/options.h"

#include "relay/base/log.h"
#include "relay/commands/database.h"

#define ROWS_MAX 24
#define KEY_FIRST 0x100 /* for argp, of options without a letter: no character */

struct parsing {
    const struct options *options;
    void *values;
};

static void *place_of(const struct option_row *row, void *values)
{
    return (char *)values + row->offset;
}

static int key_of(const struct options *options, size_t i)
{
    return options->rows[i].letter ? options->rows[i].letter : KEY_FIRST + (int)i;
}

void options_read_setting(const struct option_row *row, void *values, const char *text, struct argp_state *state)
{
    struct error err;
    if (!setting_parse(row->setting, text, values, &err))
        argp_error(state, "--%s: %s", row->name, err.text);
}

void options_read_log_level(const struct option_row *row, void *values, const char *text, struct argp_state *state)
{
    if (!log_level_parse(text, (enum log_level *)place_of(row, values)))
        argp_error(state, "--%s is error, warn, info or debug, not \"%s\"", row->name, text);
}

static void read_option(const struct option_row *row, void *values, const char *text, struct argp_state *state)
{
    if (row->read)
        row->read(row, values, text, state);
    else if (row->setting)
        options_read_setting(row, values, text, state);
    else if (row->argument)
        *(const char **)place_of(row, values) = text;
    else
        *(bool *)place_of(row, values) = true;
}

static error_t take_words(const struct parsing *parsing, int count, struct argp_state *state)
{
    if (!parsing->options->take_words)
        return ARGP_ERR_UNKNOWN;
    parsing->options->take_words(parsing->values, state->argv + state->next, count, state);
    return 0;
}

static error_t take_option(const struct parsing *parsing, int key, const char *text, struct argp_state *state)
{
    const struct option_row *rows = parsing->options->rows;
    size_t i = 0;
    while (rows[i].name && key_of(parsing->options, i) != key)
        i++;
    if (!rows[i].name)
        return ARGP_ERR_UNKNOWN;
    read_option(&rows[i], parsing->values, text, state);
    return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    const struct parsing *parsing = state->input;
    const struct options *options = parsing->options;
    switch (key) {
    case ARGP_KEY_INIT:
        if (options->database)
            state->child_inputs[0] = parsing->values;
        return 0;
    case ARGP_KEY_ARGS:
        return take_words(parsing, state->argc - state->next, state);
    case ARGP_KEY_NO_ARGS:
        return take_words(parsing, 0, state);
    case ARGP_KEY_END:
        if (options->check)
            options->check(parsing->values, state);
        return 0;
    default:
        return take_option(parsing, key, arg, state);
    }
}

void options_parse(const struct options *options, int argc, char **argv, void *values)
{
    struct argp_option rows[ROWS_MAX + 1] = {{0}};
    for (size_t i = 0; i < ROWS_MAX && options->rows[i].name; i++) {
        const struct option_row *row = &options->rows[i];
        rows[i] = (struct argp_option){row->name, key_of(options, i), row->argument, row->flags, row->help, row->group};
        if (row->setting)
            setting_defaults((const struct setting[]){*row->setting, {.name = NULL}}, values);
    }
    const struct argp_child children[] = {{&database_argp, 0, NULL, 0}, {0}};
    const struct argp argp = {.options = rows[0].name ? rows : NULL, /* argp forgets to free an empty table */
                              .parser = parse,
                              .args_doc = options->words_doc,
                              .doc = options->doc,
                              .children = options->database ? children : NULL};
    struct parsing parsing = {options, values};
    argp_parse(&argp, argc, argv, 0, NULL, &parsing);
}

void options_need_config(const char *config_path, struct argp_state *state)
{
    if (!config_path)
        argp_error(state, "give the configuration with -c FILE");
}

void options_take_queue(const char **ret, char **words, int count, struct argp_state *state)
{
    if (count == 0)
        argp_error(state, "say which queue");
    if (count > 1)
        argp_error(state, "one queue at a time");
    *ret = words[0];
}
