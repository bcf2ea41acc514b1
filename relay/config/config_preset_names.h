/* relay/config/config_preset_names.h -- the presets that there are: for the table of settings, which the presets use.
 */
#pragma once

extern const char *const config_preset_names[]; /* NULL after the last */
