/* sinks/exec/exec_settings.h -- what can be set of an exec sink. */
#pragma once

#include "relay/base/setting.h"

struct exec_settings {
    struct setting_list command;
    int64_t processes, batch;
    int64_t max_response; /* bytes */
    int64_t timeout_us, kill_after_us;
    struct setting_map environment, exit_codes;
    char *directory; /* or NULL */
    bool log_stderr;
};

extern const struct setting exec_settings_table[];

/* As sink_type.response_max. */
int64_t exec_settings_response_max(const void *settings, const char **ret_why);
