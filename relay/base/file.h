/* relay/base/file.h -- a small file in memory. */
#ifndef RELAY_BASE_FILE_H
#define RELAY_BASE_FILE_H

#include "relay/base/error.h"

#include <stddef.h>

/* The whole file, NUL-terminated; free() it. NULL and *err when it cannot be read (ERROR_UNREACHABLE; ERROR_PERMISSION
 * where the system refuses us; ERROR_RESOURCE for want of descriptors or memory) or is larger than `max` bytes
 * (ERROR_CONFIG). Neither names the path. Works on pipes. */
char *file_read(const char *path, size_t max, size_t *ret_size, struct error *err) MUST_CHECK;

#endif
