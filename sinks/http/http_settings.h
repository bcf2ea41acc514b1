/* sinks/http/http_settings.h -- what the configuration says about an HTTP sink. */
#pragma once

#include "relay/base/exposure.h"
#include "relay/base/setting.h"

enum http_version { HTTP_VERSION_1_1, HTTP_VERSION_2 };

struct http_settings {
    char *url;
    int64_t timeout_us, connect_timeout_us;
    struct setting_map headers;
    struct setting_list secrets; /* the newest first */
    char *bearer_token, *content_type, *ca_file, *pinned_public_key, *proxy;
    int64_t max_response; /* bytes */
    int http_version;     /* enum http_version */
    int64_t connections;
    bool log_answers;
};

extern const struct setting http_setting_rows[]; /* they fill a struct http_settings */

/* pinned_public_key is written as libcurl reads it: "sha256//" and 32 bytes in base64, separated by ;. It would take
 * anything else for the name of a file, and its own message names no setting. */
bool http_settings_check_pins(const struct http_settings *settings, bool https, struct error *err);

int64_t http_settings_response_max(const void *settings, const char **ret_why); /* as sink_type.response_max */
bool http_settings_exposed(const void *settings, struct exposure *ret);         /* as sink_type.exposed */
