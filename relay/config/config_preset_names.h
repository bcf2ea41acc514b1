/* relay/config/config_preset_names.h -- the presets that there are: for the table of settings, which the presets use.
 */
#ifndef RELAY_CONFIG_PRESET_NAMES_H
#define RELAY_CONFIG_PRESET_NAMES_H

extern const char *const config_preset_names[]; /* NULL after the last */

#endif
