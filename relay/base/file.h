/* relay/base/file.h -- a small file in memory. */
#pragma once

#include "relay/base/error.h"

#include <stddef.h>
#include <sys/types.h>

/* The whole file, NUL-terminated; free() it. NULL and *err when it cannot be read (ERROR_UNREACHABLE; ERROR_PERMISSION
 * where the system refuses us; ERROR_RESOURCE for want of descriptors or memory) or is larger than `max` bytes
 * (ERROR_CONFIG). Neither names the path. Works on pipes. */
char *file_read(const char *path, size_t max, size_t *ret_size, struct error *err) MUST_CHECK;

/* Who else can get at a secret in the file: "may be read by everybody", or NULL. Of what is no file, or cannot be
 * looked at, nothing is said. */
const char *file_exposed(const char *path);

/* The same of a file with this mode and owner, for a reader. Root may own it and lend it to a group to read, as secrets
 * are mounted into containers. To root itself all files are readable, so whose they are says nothing. */
const char *file_mode_exposed(mode_t mode, uid_t owner, uid_t reader);
