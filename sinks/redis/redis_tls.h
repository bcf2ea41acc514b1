/* sinks/redis/redis_tls.h -- TLS for a Redis connection, where hiredis has it (1.0 and later with hiredis_ssl).
 *
 * The server's certificate is always checked, name included: hiredis alone would not check the name. */
#pragma once

#include "relay/base/error.h"

#include <hiredis/hiredis.h>

struct redis_tls;

/* `ca_path` NULL: the system's certificate authorities. NULL and *err (ERROR_CONFIG) if this cannot work, which
 * includes a build without TLS. */
struct redis_tls *redis_tls_new(const char *ca_path, const char *host, struct error *err) MUST_CHECK;
void redis_tls_free(struct redis_tls *tls); /* NULL is a no-op */

/* Begins the handshake; hiredis goes on with it whenever the connection is read or written. */
bool redis_tls_start(struct redis_tls *tls, redisContext *context, struct error *err) MUST_CHECK;

/* Before the context is freed. NULL is a no-op. */
void redis_tls_end(struct redis_tls *tls);

/* Before each read or write: what other users of OpenSSL left behind must not look like our failure. */
void redis_tls_clear(void);

/* Why the connection failed, as far as TLS knows; NULL if it does not. Valid until redis_tls_end(). */
const char *redis_tls_fault(const struct redis_tls *tls);
