/* Preloaded into a relay: as long as the file $HUNG_RESOLVER is there, looking up a name waits for name servers that
 * never answer; afterwards every name is 127.0.0.1. */
#include <dlfcn.h>
#include <netdb.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define POLL_US 20000

int getaddrinfo(const char *restrict name, const char *restrict service, const struct addrinfo *restrict hints,
                struct addrinfo **restrict ret)
{
    typedef int function(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    function *real = (function *)(intptr_t)dlsym(RTLD_NEXT, "getaddrinfo");
    struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST};
    if (hints) {
        numeric = *hints;
        numeric.ai_flags |= AI_NUMERICHOST;
    }
    int code = real(name, service, &numeric, ret);
    if (code != EAI_NONAME || (hints && hints->ai_flags & AI_NUMERICHOST))
        return code;
    while (access(getenv("HUNG_RESOLVER"), F_OK) == 0)
        usleep(POLL_US);
    return real("127.0.0.1", service, &numeric, ret);
}
