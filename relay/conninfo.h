/* relay/conninfo.h -- how safe libpq's connection would be, before there is one. */
#ifndef RELAY_CONNINFO_H
#define RELAY_CONNINFO_H

#include "relay/base/exposure.h"

/* What of libpq's options decides it, as they are when connection string, service file and environment are put
 * together. NULL is empty. */
struct conninfo_security {
    const char *host, *hostaddr; /* comma-separated */
    const char *sslmode, *gssencmode;
    bool has_root; /* the file of root certificates is there */
};

/* Does `database`, any libpq connection string, lead over a network to a server that is not verified? Then *ret says
 * why. Connects to nothing; a string that libpq cannot read leads nowhere. */
bool conninfo_exposed(const char *database, struct exposure *ret);

/* The same by the options alone. */
bool conninfo_security_exposed(const struct conninfo_security *security, struct exposure *ret);

#endif
