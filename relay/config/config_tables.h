/* relay/config/config_tables.h -- every key that the configuration file knows, but for the sinks' own. */
#pragma once

#include "relay/base/setting.h"

extern const struct setting config_settings[];    /* top level, of struct config */
extern const struct setting sink_type_settings[]; /* `type` of a sink, of a char * */
extern const struct setting sink_settings[];      /* what all sinks share, of struct sink_config */
extern const struct setting queue_settings[];     /* of struct queue_config, like the groups */

/* A key whose value is a mapping with keys of its own. */
struct config_group {
    const char *name;
    const struct setting *settings;
    const char *help;
};

extern const struct config_group queue_groups[]; /* ends with a row whose name is NULL */

/* What a queue without `table` reads: our own table, all its columns. */
extern const char outbox_table[];
extern const struct setting outbox_columns[]; /* of struct queue_config; the fallbacks are the names */
