#include "sinks/exec/exec_settings.h"

#include "relay/base/clock.h"

const struct setting exec_settings_table[] = {
    {.name = "command",
     .kind = SETTING_LIST,
     .offset = offsetof(struct exec_settings, command),
     .required = true,
     .help = "program and arguments, no shell"},
    {.name = "processes",
     .kind = SETTING_COUNT,
     .offset = offsetof(struct exec_settings, processes),
     .fallback = "8",
     .min = 1,
     .max = 1000,
     .help = "commands at once"},
    {.name = "batch",
     .kind = SETTING_COUNT,
     .offset = offsetof(struct exec_settings, batch),
     .fallback = "1",
     .min = 1,
     .max = 10000,
     .help = "events for one command, up to 1MB"},
    {.name = "max_response",
     .kind = SETTING_SIZE,
     .offset = offsetof(struct exec_settings, max_response),
     .fallback = "64kB",
     .min = 1,
     .max = INT64_C(1) << 30,
     .help = "of standard output with `then_payload: response`"},
    {.name = "timeout",
     .kind = SETTING_DURATION,
     .offset = offsetof(struct exec_settings, timeout_us),
     .fallback = "1m",
     .min = MS_US,
     .max = 3600 * SECOND_US,
     .help = "for one command; then SIGTERM"},
    {.name = "kill_after",
     .kind = SETTING_DURATION,
     .offset = offsetof(struct exec_settings, kill_after_us),
     .fallback = "5s",
     .min = MS_US,
     .max = 3600 * SECOND_US,
     .help = "from SIGTERM to SIGKILL"},
    {.name = "environment",
     .kind = SETTING_MAP,
     .offset = offsetof(struct exec_settings, environment),
     .help = "variables, besides PATH, LANG and PGCOURIER_*"},
    {.name = "directory",
     .kind = SETTING_TEXT,
     .offset = offsetof(struct exec_settings, directory),
     .help = "working directory; default the relay's"},
    {.name = "exit_codes",
     .kind = SETTING_MAP,
     .offset = offsetof(struct exec_settings, exit_codes),
     .help = "code from 1 to 255, or `other`: ack, retry, reject or unavailable; default 75 retry, 126 and 127 "
             "unavailable, other reject"},
    {.name = "log_stderr",
     .kind = SETTING_BOOL,
     .offset = offsetof(struct exec_settings, log_stderr),
     .fallback = "yes",
     .help = "a failed command's last line goes into log and dead letter"},
    {.name = NULL},
};

int64_t exec_settings_response_max(const void *settings, const char **ret_why)
{
    const struct exec_settings *exec = settings;
    *ret_why = "its commands get several events at once (batch)";
    return exec->batch == 1 ? exec->max_response : 0;
}
