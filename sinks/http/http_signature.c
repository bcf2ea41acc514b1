#include "sinks/http/http_signature.h"

#include "relay/base/arena.h"
#include "relay/base/fault_point.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <string.h>

/* By the specification. */
#define SECRET_BYTES_MIN 24
#define SECRET_BYTES_MAX 64

#define DIGITS_MAX (SECRET_BYTES_MAX * 4 / 3 + 3) /* in whole groups of four */
#define MAC_BYTES 32
#define A_NEW_ONE "make one: echo whsec_$(openssl rand -base64 32)"

static const char prefix[] = "whsec_";

struct http_signer {
    size_t count;
    EVP_MAC_CTX *keyed[HTTP_SECRETS_MAX]; /* each is copied for a signature */
};

/* ---- secrets ---- */

/* Of one that begins with the prefix. Padding is not needed: receivers' libraries read it without. */
static const char *digits_of(const char *text, size_t *ret_count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *first = text + sizeof prefix - 1;
    *ret_count = strspn(first, digits);
    return first;
}

static size_t bytes_of(size_t digits)
{
    return digits * 3 / 4;
}

bool http_secret_check(const char *text, struct error *err)
{
    if (!*text)
        return error_set(err, ERROR_CONFIG, "is empty; write whsec_ and the secret in base64, or leave it out");
    if (strncmp(text, prefix, sizeof prefix - 1) != 0)
        return error_set(err, ERROR_CONFIG, "does not begin with whsec_; write whsec_ and the secret in base64");
    size_t digits;
    const char *end = digits_of(text, &digits) + digits;
    size_t padding = strspn(end, "=");
    if (end[padding])
        return error_set(err, ERROR_CONFIG,
                         "byte %zu is not of base64, which has A-Z a-z 0-9 + / and = at the end; copy the secret again",
                         (size_t)(end - text) + padding + 1);
    if (digits % 4 == 1 || (padding > 0 && (padding > 2 || (digits + padding) % 4 != 0)))
        return error_set(err, ERROR_CONFIG, "its base64 is not whole; copy the secret again");
    if (bytes_of(digits) < SECRET_BYTES_MIN)
        return error_set(err, ERROR_CONFIG, "has %zu bytes, and %d are the least; " A_NEW_ONE, bytes_of(digits),
                         SECRET_BYTES_MIN);
    if (bytes_of(digits) > SECRET_BYTES_MAX)
        return error_set(err, ERROR_CONFIG, "has %zu bytes, and %d are the most; " A_NEW_ONE, bytes_of(digits),
                         SECRET_BYTES_MAX);
    return true;
}

static bool set_key(EVP_MAC_CTX *ctx, const char *secret)
{
    char sha256[] = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha256, 0),
                                 OSSL_PARAM_construct_end()};
    unsigned char text[DIGITS_MAX], key[DIGITS_MAX];
    size_t count;
    const char *digits = digits_of(secret, &count);
    memset(mempcpy(text, digits, count), '=', sizeof text - count);
    bool set = EVP_DecodeBlock(key, text, (int)((count + 3) / 4 * 4)) > 0 &&
               EVP_MAC_init(ctx, key, bytes_of(count), params) == 1;
    explicit_bzero(text, sizeof text);
    explicit_bzero(key, sizeof key);
    return set;
}

/* ---- the signer ---- */

struct http_signer *http_signer_open(const struct setting_list *secrets, struct error *err)
{
    struct http_signer *signer = memory_new(sizeof *signer);
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    bool good = mac != NULL;
    for (size_t i = 0; good && i < secrets->count; i++) {
        EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
        signer->keyed[signer->count++] = ctx;
        good = ctx && set_key(ctx, secrets->texts[i]);
    }
    EVP_MAC_free(mac);
    if (good)
        return signer;
    http_signer_close(signer);
    error_set(err, ERROR_CONFIG, "secrets: OpenSSL %s has no HMAC-SHA256, or no memory; requests cannot be signed",
              OpenSSL_version(OPENSSL_VERSION_STRING));
    return NULL;
}

void http_signer_close(struct http_signer *signer)
{
    for (size_t i = 0; signer && i < signer->count; i++)
        EVP_MAC_CTX_free(signer->keyed[i]); /* overwrites the key */
    free(signer);
}

static bool update(EVP_MAC_CTX *ctx, struct span bytes)
{
    return EVP_MAC_update(ctx, (const unsigned char *)bytes.data, bytes.size) == 1;
}

static bool compute(const EVP_MAC_CTX *keyed, const struct http_signed *what, unsigned char *ret)
{
    /* A copy, because OpenSSL up to 3.0.2 does not begin anew with the key that it has (its issue 17811). */
    EVP_MAC_CTX *ctx = EVP_MAC_CTX_dup(keyed);
    size_t size = 0;
    bool good = ctx && update(ctx, what->id) && update(ctx, SPAN_LITERAL(".")) && update(ctx, what->timestamp) &&
                update(ctx, SPAN_LITERAL(".")) && update(ctx, what->body) &&
                EVP_MAC_final(ctx, ret, &size, MAC_BYTES) == 1 && size == MAC_BYTES;
    EVP_MAC_CTX_free(ctx);
    return good;
}

bool http_signer_sign(const struct http_signer *signer, const struct http_signed *what, char *ret, struct error *err)
{
    for (size_t i = 0; i < signer->count; i++) {
        unsigned char mac[MAC_BYTES];
        if (FAULT_ERROR("http.sign") || !compute(signer->keyed[i], what, mac))
            return error_set(err, ERROR_UNREACHABLE, "webhook-signature: OpenSSL has no memory");
        if (i > 0)
            *ret++ = ' ';
        ret = mempcpy(ret, "v1,", strlen("v1,"));
        ret += EVP_EncodeBlock((unsigned char *)ret, mac, MAC_BYTES);
    }
    return true;
}
