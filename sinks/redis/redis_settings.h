/* sinks/redis/redis_settings.h -- what the configuration says about a Redis sink. */
#pragma once

#include "relay/base/exposure.h"
#include "relay/base/setting.h"

struct redis_settings {
    char *url, *username, *password, *tls_ca;
    int command;    /* enum redis_command_kind */
    int64_t maxlen; /* 0: streams are not trimmed */
    int64_t timeout_us;
};

extern const struct setting redis_setting_rows[]; /* they fill a struct redis_settings */

bool redis_settings_exposed(const void *settings, struct exposure *ret); /* as sink_type.exposed */
