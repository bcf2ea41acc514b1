/* relay/config/config_preset.h -- settings for tables that people already have, by the name of where they come from.
 * What the queue's own settings say goes first. */
#pragma once

#include "relay/config/config.h"
#include "relay/config/config_read.h"

#include <stdio.h>

/* Fills `queue` as the preset of its mapping says, if it names one; to be called before the mapping is read. */
bool config_preset_read(const struct config_place *place, const struct yaml_node *map, struct queue_config *queue,
                        struct error *err) MUST_CHECK;

/* The preset's settings with the values that are in force, as one would write them; nothing without a preset. */
void config_preset_print(FILE *out, const struct queue_config *queue);

/* All of them, for docs/configuration.md. */
void config_preset_print_reference(FILE *out);
