/* relay/commands/options.h -- the command line of a command as a table: what each option is called, what --help says
 * of it, and where in the command's own struct its value goes. */
#pragma once

#include "relay/base/setting.h"

#include <argp.h>

struct option_row {
    const char *name;     /* as in --name; NULL after the last */
    int letter;           /* as in -c, or 0 */
    const char *argument; /* what --help calls its argument; NULL: it has none */
    const char *help;
    size_t offset;                 /* const char *, borrowed from argv; bool for an option without an argument */
    const struct setting *setting; /* instead of `offset`: reads the argument; its fallback holds without the option */
    /* Instead of both (but a fallback holds): stores the argument, or ends the process by argp_error(). */
    void (*read)(const struct option_row *row, void *values, const char *text, struct argp_state *state);
    int group, flags; /* as in struct argp_option */
};

struct options {
    const struct option_row *rows;
    bool database; /* -c or -d says which database; the command's struct begins with its struct database */
    const char *words_doc, *doc; /* for --help; the first NULL: the command takes no words */
    /* The words that are no options, `count` of them, maybe 0. NULL: there may be none. */
    void (*take_words)(void *values, char **words, int count, struct argp_state *state);
    void (*check)(void *values, struct argp_state *state); /* all of it, at the end; or NULL */
};

/* Fills `values`, the command's own struct. Ends the process after --help and when something is wrong. */
void options_parse(const struct options *options, int argc, char **argv, void *values);

/* For `read`: as if the row had `setting` alone. */
void options_read_setting(const struct option_row *row, void *values, const char *text, struct argp_state *state);

/* For `read`: a log level, stored at the row's offset. */
void options_read_log_level(const struct option_row *row, void *values, const char *text, struct argp_state *state);

/* What most commands end with when -c is missing. */
void options_need_config(const char *config_path, struct argp_state *state);

/* For `take_words` of a command that wants the name of one queue. */
void options_take_queue(const char **ret, char **words, int count, struct argp_state *state);
