/* relay/base/libraries.h -- the libraries that this process runs with, which need not be those it was built with. */
#pragma once

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

/* "libpq 15.18, librdkafka 2.0.2, ...": at most `size` bytes. */
void libraries_show(char *ret, size_t size);

/* Does libpq `version`, a PQlibVersion(), have a known weakness that a later release of its major has not? Then `ret`
 * says so, in at most `size` bytes. */
bool libraries_libpq_is_bad(int version, char *ret, size_t size);
