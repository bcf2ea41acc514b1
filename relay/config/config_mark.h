/* relay/config/config_mark.h -- where in the file each setting stands, for what is said of it after it was read. */
#pragma once

#include "relay/config/config.h"
#include "relay/config/yaml.h"

/* Takes note of all settings of `root`; names only, and of the values those that may be names of files. */
void config_mark_all(struct config *config, const struct yaml_node *root);
void config_mark_free(struct config *config);

/* "FILE:LINE:COLUMN" of the value of `path`, e.g. "sinks.web.url" or its `_file`, else of what it would stand in; FILE
 * alone when it is of the top level and not given. At most `size` bytes. */
void config_mark_where(const struct config *config, const char *path, char *ret, size_t size);

/* The value of a setting that may name a file, one that is called `_file` or is a location of Kafka's, with its
 * variables put in, and its path in *ret_path; NULL if the mark is none of these. */
const char *config_mark_file(const struct config *config, size_t mark, const char **ret_path);
