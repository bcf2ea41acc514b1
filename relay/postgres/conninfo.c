#include "relay/postgres/conninfo.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ANY_ROOTS = 1u << ROOTS_NONE | 1u << ROOTS_OWN | 1u << ROOTS_PUBLIC };

/* The modes that verify nobody, or anybody. verify-full is not here; without root certificates verify-ca does not
 * connect, and require with some is verify-ca. */
static const struct {
    const char *sslmode, *why;
    unsigned roots; /* with which it is here */
} modes[] = {
    {"disable", "is not encrypted: sslmode=disable", ANY_ROOTS},
    {"allow", "is encrypted only if the server insists, and its certificate is not verified: sslmode=allow", ANY_ROOTS},
    {"prefer",
     "is encrypted only if the server offers it, and its certificate is not verified: sslmode=prefer, libpq's default",
     ANY_ROOTS},
    {"require", "is encrypted, but the server's certificate is not verified: sslmode=require has no root certificate",
     1u << ROOTS_NONE},
    {"require",
     "is encrypted, but to whoever has a certificate for any host: sslmode=require with the system's root certificates",
     1u << ROOTS_PUBLIC},
    {"verify-ca",
     "is encrypted, but to whoever has a certificate for any host: sslmode=verify-ca with the system's root "
     "certificates",
     1u << ROOTS_PUBLIC},
};

/* Where systems keep the root certificates of the public web, their links followed. */
static const char *const public_roots[] = {
    "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Alpine, Arch */
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* Red Hat */
    "/var/lib/ca-certificates/ca-bundle.pem",            /* SUSE */
    "/usr/local/share/certs/ca-root-nss.crt",            /* FreeBSD */
};

/* The next of a comma-separated list, which may be empty; *list goes behind it, and is NULL after the last. */
static struct span next_of(const char **list)
{
    const char *from = *list;
    if (!from)
        return (struct span){"", 0};
    size_t size = strcspn(from, ",");
    *list = from[size] ? from + size + 1 : NULL;
    return (struct span){from, size};
}

/* libpq takes the address before the name, and neither means the default socket. */
static void add_hosts(const struct conninfo_security *security, struct exposure *exposure)
{
    const char *names = security->host, *addresses = security->hostaddr;
    while (names || addresses) {
        struct span name = next_of(&names), address = next_of(&addresses);
        struct span host = address.size ? address : name;
        bool is_socket = host.size && (host.data[0] == '/' || host.data[0] == '@');
        if (!is_socket)
            exposure_add_host(exposure, host);
    }
}

bool conninfo_security_exposed(const struct conninfo_security *security, struct exposure *ret)
{
    if (!security->sslmode || (security->gssencmode && strcmp(security->gssencmode, "require") == 0))
        return false; /* Kerberos encrypts, and knows the server */
    *ret = (struct exposure){.remedy = "sslmode=verify-full sslrootcert=FILE"};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(security->sslmode, modes[i].sslmode) == 0 && (modes[i].roots & 1u << security->roots))
            ret->why = modes[i].why;
    if (ret->why)
        add_hosts(security, ret);
    return ret->hosts[0] != '\0';
}

/* libpq verifies by the file that it is given or by its own, and if that is not there, by none. */
static enum conninfo_roots find_roots(const char *sslrootcert)
{
    char path[PATH_MAX], file[PATH_MAX];
    const struct passwd *user = NULL;
    const char *home = getenv("HOME");
    if ((!home || !home[0]) && (user = getpwuid(geteuid())) != NULL)
        home = user->pw_dir;
    snprintf(path, sizeof path, "%s/.postgresql/root.crt", home ? home : "");
    if (!realpath(sslrootcert ? sslrootcert : path, file))
        return ROOTS_NONE;
    for (size_t i = 0; i < sizeof public_roots / sizeof public_roots[0]; i++)
        if (strcmp(file, public_roots[i]) == 0)
            return ROOTS_PUBLIC;
    return ROOTS_OWN;
}

const char *conninfo_option(const PQconninfoOption *options, const char *keyword)
{
    const PQconninfoOption *option = options; /* the last one has no keyword and no value; NULL: no memory */
    while (option && option->keyword && strcmp(option->keyword, keyword) != 0)
        option++;
    return option && option->val && option->val[0] ? option->val : NULL;
}

/* libpq tells what it made of everything only of a connection that has been begun. This one it refuses to begin, for a
 * channel binding that there is not, after it has read all it reads; with a password given, the password file is not
 * looked at. Later keywords go before earlier ones. */
PQconninfoOption *conninfo_options(const char *database)
{
    static const char *const keywords[] = {"dbname", "password", "channel_binding", NULL};
    const char *const values[] = {database, "none", "none", NULL};
    PGconn *conn = PQconnectStartParams(keywords, values, 1);
    PQconninfoOption *options = conn ? PQconninfo(conn) : NULL;
    PQfinish(conn);
    return options;
}

/* *ret_falls_back: in plain text if the other side likes. */
static bool find_exposure(const char *database, struct exposure *ret, bool *ret_falls_back)
{
    PQconninfoOption *options = conninfo_options(database);
    struct conninfo_security security = {
        .host = conninfo_option(options, "host"),
        .hostaddr = conninfo_option(options, "hostaddr"),
        .sslmode = conninfo_option(options, "sslmode"),
        .gssencmode = conninfo_option(options, "gssencmode"),
        .roots = find_roots(conninfo_option(options, "sslrootcert")),
    };
    bool exposed = conninfo_security_exposed(&security, ret);
    *ret_falls_back = exposed && (strcmp(security.sslmode, "allow") == 0 || strcmp(security.sslmode, "prefer") == 0);
    PQconninfoFree(options);
    return exposed;
}

const char *conninfo_refusal(const char *database)
{
    bool is_url = strncmp(database, "postgresql://", 13) == 0 || strncmp(database, "postgres://", 11) == 0;
    if (!is_url && strstr(database, "://"))
        return "libpq knows no such URL; write postgresql://USER@HOST/DATABASE";
    if (!is_url && !strchr(database, '='))
        return NULL; /* a database's name alone, or nothing */
    char *why = NULL;
    PQconninfoOption *options = PQconninfoParse(database, &why);
    bool good = options != NULL;
    PQconninfoFree(options);
    PQfreemem(why);
    return good ? NULL : "libpq cannot read this; write postgresql://USER@HOST/DATABASE or host=HOST dbname=DATABASE";
}

bool conninfo_exposed(const char *database, struct exposure *ret)
{
    bool falls_back;
    return find_exposure(database, ret, &falls_back);
}

bool conninfo_check(const char *database, struct error *err)
{
    struct exposure exposure;
    bool falls_back;
    return !find_exposure(database, &exposure, &falls_back) || !falls_back ||
           error_set(err, ERROR_CONFIG,
                     "what goes to %s %s; write %s, or sslmode=disable if the network itself is safe", exposure.hosts,
                     exposure.why, exposure.remedy);
}
