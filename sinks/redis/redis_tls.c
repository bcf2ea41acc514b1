#include "sinks/redis/redis_tls.h"

#ifdef HAVE_HIREDIS_SSL

#include "relay/base/arena.h"

#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>

struct redis_tls {
    SSL_CTX *context;
    SSL *ssl; /* of the connection that stands; hiredis owns it */
    char *host;
};

static const char *last_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason ? reason : "unknown TLS failure";
}

struct redis_tls *redis_tls_new(const char *ca_path, const char *host, struct error *err)
{
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) {
        SSL_CTX_free(context);
        error_set(err, ERROR_CONFIG, "cannot use TLS: %s", last_reason());
        return NULL;
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    int loaded = ca_path ? SSL_CTX_load_verify_file(context, ca_path) : SSL_CTX_set_default_verify_paths(context);
    if (loaded != 1) {
        SSL_CTX_free(context);
        error_set(err, ERROR_CONFIG, "cannot read certificates from tls_ca %s: %s; give a PEM file",
                  ca_path ? ca_path : "(the system's)", last_reason());
        return NULL;
    }
    struct redis_tls *tls = memory_new(sizeof *tls);
    tls->context = context;
    tls->host = memory_text(host);
    return tls;
}

void redis_tls_free(struct redis_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    free(tls->host);
    free(tls);
}

bool redis_tls_start(struct redis_tls *tls, redisContext *context, struct error *err)
{
    ERR_clear_error();
    SSL *ssl = tls->ssl = SSL_new(tls->context);
    if (!ssl || SSL_set1_host(ssl, tls->host) != 1 || SSL_set_tlsext_host_name(ssl, tls->host) != 1 ||
        redisInitiateSSL(context, ssl) != REDIS_OK) {
        const char *fault = redis_tls_fault(tls); /* the whole handshake may have happened, and failed */
        error_set(err, ERROR_UNREACHABLE, "%s", fault ? fault : context->errstr);
        SSL_free(ssl);
        tls->ssl = NULL;
        return false;
    }
    /* hiredis writes its buffer in pieces as large as the socket takes. */
    SSL_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE);
    return true;
}

void redis_tls_end(struct redis_tls *tls)
{
    if (tls)
        tls->ssl = NULL;
}

void redis_tls_clear(void)
{
    ERR_clear_error();
}

const char *redis_tls_fault(const struct redis_tls *tls)
{
    long verified = tls && tls->ssl ? SSL_get_verify_result(tls->ssl) : X509_V_OK;
    if (verified != X509_V_OK)
        return X509_verify_cert_error_string(verified);
    return ERR_peek_last_error() ? last_reason() : NULL;
}

#else

struct redis_tls *redis_tls_new(const char *ca_path, const char *host, struct error *err)
{
    (void)ca_path;
    error_set(err, ERROR_CONFIG,
              "rediss:// needs TLS and this pgcourier was built with a hiredis that has none (before 1.0); run "
              "stunnel towards %s and give its address as redis://127.0.0.1:PORT",
              host);
    return NULL;
}

void redis_tls_free(struct redis_tls *tls)
{
    (void)tls;
}

bool redis_tls_start(struct redis_tls *tls, redisContext *context, struct error *err)
{
    (void)tls, (void)context;
    return error_set(err, ERROR_INTERNAL, "TLS is not built in");
}

void redis_tls_end(struct redis_tls *tls)
{
    (void)tls;
}

void redis_tls_clear(void)
{
}

const char *redis_tls_fault(const struct redis_tls *tls)
{
    (void)tls;
    return NULL;
}

#endif
