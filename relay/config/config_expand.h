/* relay/config/config_expand.h -- ${VAR}, ${VAR:-default} and $$ in a configuration value. */
#pragma once

#include "relay/base/error.h"

/* Returns `text` with every reference replaced by the environment variable, or by the default where that is unset or
 * empty; what was put in is not looked at again. The caller frees it. NULL and *err (ERROR_CONFIG) when a variable
 * without default is unset, or a $ is neither a reference nor doubled; *err names variables, never their values. */
char *config_expand(const char *text, struct error *err) MUST_CHECK;
