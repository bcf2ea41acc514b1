/* relay/postgres/conninfo.h -- where libpq's connection would lead and how safe it would be, before there is one. */
#pragma once

#include "relay/base/error.h"
#include "relay/base/exposure.h"

#include <libpq-fe.h>

/* Whose certificates sign the server's. A mode that looks at no host name takes any certificate that they sign, and
 * with those of the system anybody can have one. */
enum conninfo_roots { ROOTS_NONE, ROOTS_OWN, ROOTS_PUBLIC };

/* What of libpq's options decides it, as they are when connection string, service file and environment are put
 * together. NULL is empty. */
struct conninfo_security {
    const char *host, *hostaddr; /* comma-separated */
    const char *sslmode, *gssencmode;
    enum conninfo_roots roots;
};

/* Why libpq cannot read `database`, any connection string, and what to write; NULL: it can. Nothing of the string is in
 * it, which may hold a password: libpq's own words would quote that. */
const char *conninfo_refusal(const char *database);

/* What libpq would make of `database`, any connection string, and of service file and environment. Connects to nothing.
 * PQconninfoFree() it; NULL when there is no memory. */
PQconninfoOption *conninfo_options(const char *database);
const char *conninfo_option(const PQconninfoOption *options, const char *keyword); /* NULL: not set, or empty */

/* Does `database`, any libpq connection string, lead over a network to a server that is not verified? Then *ret says
 * why. Connects to nothing; a string that libpq cannot read leads nowhere. */
bool conninfo_exposed(const char *database, struct exposure *ret);

/* False and *err (ERROR_CONFIG) where what goes over that network is encrypted or not as the other side likes. Nobody
 * who thinks of it asks for that, but it is libpq's default. */
bool conninfo_check(const char *database, struct error *err) MUST_CHECK;

/* The first by the options alone. */
bool conninfo_security_exposed(const struct conninfo_security *security, struct exposure *ret);
