/* sinks/http/http_signature.h -- by which a receiver knows that a request is from who has the secret.
 *
 *   http_signer_open -> http_signer_sign* -> http_signer_close
 *
 * Standard Webhooks (https://www.standardwebhooks.com), the symmetric scheme: HMAC-SHA256 over "id.timestamp.body".
 * While a secret is being replaced a request carries a signature for each, and a receiver accepts it if one matches. */
#pragma once

#include "relay/base/setting.h"
#include "relay/base/span.h"

#define HTTP_SECRETS_MAX 10
#define HTTP_SIGNATURE_BYTES (sizeof "v1," - 1 + 44) /* with the base64 of 32 bytes */
#define HTTP_SIGNATURES_BYTES_MAX (HTTP_SECRETS_MAX * (HTTP_SIGNATURE_BYTES + 1))

struct http_signer;

/* As the receiver reads it. None of the first two holds a dot. */
struct http_signed {
    struct span id, timestamp, body;
};

/* Is it whsec_ and 24 to 64 bytes in base64? False and *err (ERROR_CONFIG), which does not show it. */
bool http_secret_check(const char *text, struct error *err) MUST_CHECK;

/* `secrets` has 1 to HTTP_SECRETS_MAX that http_secret_check() takes, and is not needed any more. NULL and *err
 * (ERROR_CONFIG) when libcrypto cannot do this. */
struct http_signer *http_signer_open(const struct setting_list *secrets, struct error *err);
void http_signer_close(struct http_signer *signer); /* NULL is a no-op */

/* The value of webhook-signature: one for each secret, in their order, with a blank between. `ret` has room for
 * HTTP_SIGNATURES_BYTES_MAX. False and *err when libcrypto has no memory: ERROR_UNREACHABLE, as it is not the event's
 * fault. */
bool http_signer_sign(const struct http_signer *signer, const struct http_signed *what, char *ret,
                      struct error *err) MUST_CHECK;
