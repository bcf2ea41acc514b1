/* relay/base/exposure.h -- a peer that is reached over a network without TLS that verifies who it is.
 *
 *   .setting, .why and .remedy are filled in -> exposure_add_host* -> exposed unless `hosts` is empty
 *
 * A host on this machine is no network: loopback and Unix sockets never count. */
#pragma once

#include "relay/base/span.h"

struct exposure {
    const char *setting; /* whose value it is, below the sink: "url", "properties.security.protocol"; or NULL */
    const char *why;     /* goes after "what goes to HOSTS" */
    const char *remedy;  /* what to write instead */
    char hosts[256];     /* "db1.example, db2.example", without those on this machine; no user and no password */
};

/* Does `host`, a name or an address, with brackets or without, stand for this machine? Looks nothing up: a name is so
 * by what it says. */
bool exposure_is_local(const char *host);

/* Takes note of a host that is not on this machine, once. */
void exposure_add_host(struct exposure *exposure, struct span host);
