#include "sinks/exec/exec_settings.h"

#include "relay/base/clock.h"

const struct setting exec_settings_table[] = {
    {"command", SETTING_LIST, offsetof(struct exec_settings, command), .required = true,
     .help = "program and arguments, no shell"},
    {"processes", SETTING_COUNT, offsetof(struct exec_settings, processes), "8", .min = 1, .max = 1000,
     .help = "commands at once"},
    {"batch", SETTING_COUNT, offsetof(struct exec_settings, batch), "1", .min = 1, .max = 10000,
     .help = "events for one command, up to 1MB"},
    {"max_response", SETTING_SIZE, offsetof(struct exec_settings, max_response), "64kB", .min = 1,
     .max = INT64_C(1) << 30, .help = "of standard output with `then_payload: response`"},
    {"timeout", SETTING_DURATION, offsetof(struct exec_settings, timeout_us), "1m", .min = MS_US,
     .max = 3600 * SECOND_US, .help = "for one command; then SIGTERM"},
    {"kill_after", SETTING_DURATION, offsetof(struct exec_settings, kill_after_us), "5s", .min = MS_US,
     .max = 3600 * SECOND_US, .help = "from SIGTERM to SIGKILL"},
    {"environment", SETTING_MAP, offsetof(struct exec_settings, environment),
     .help = "variables, besides PATH, LANG and PGCOURIER_*"},
    {"directory", SETTING_TEXT, offsetof(struct exec_settings, directory),
     .help = "working directory; default the relay's"},
    {"exit_codes", SETTING_MAP, offsetof(struct exec_settings, exit_codes),
     .help = "code from 1 to 255, or `other`: ack, retry, reject or unavailable; default 75 retry, 126 and 127 "
             "unavailable, other reject"},
    {"log_stderr", SETTING_BOOL, offsetof(struct exec_settings, log_stderr), "yes",
     .help = "a failed command's last line goes into log and dead letter"},
    {.name = NULL},
};

int64_t exec_settings_response_max(const void *settings, const char **ret_why)
{
    const struct exec_settings *exec = settings;
    *ret_why = "its commands get several events at once (batch)";
    return exec->batch == 1 ? exec->max_response : 0;
}
