#include "relay/base/exposure.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>

#define HOST_BYTES_MAX 255 /* longer ones are cut; DNS has none */
#define AND_MORE ", ..."

static bool is_local_v4(in_addr_t address)
{
    /* Linux connects 0.0.0.0 to this machine. */
    return address == INADDR_ANY || address >> 24 == 127;
}

static bool is_local_address(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return is_local_v4(ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr));
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    if (!IN6_IS_ADDR_V4MAPPED(v6))
        return IN6_IS_ADDR_LOOPBACK(v6) || IN6_IS_ADDR_UNSPECIFIED(v6);
    in_addr_t v4;
    memcpy(&v4, v6->s6_addr + 12, sizeof v4);
    return is_local_v4(ntohl(v4));
}

/* RFC 6761, and the names that Debian's and Red Hat's /etc/hosts have for ::1 and 127.0.0.1. */
static bool is_local_name(const char *name)
{
    static const char *const names[] = {"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback",
                                        "localhost6"};
    size_t size = strlen(name);
    size -= size > 0 && name[size - 1] == '.';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == size && strncasecmp(name, names[i], size) == 0)
            return true;
    const struct span below = SPAN_LITERAL(".localhost");
    return size > below.size && strncasecmp(name + size - below.size, below.data, below.size) == 0;
}

bool exposure_is_local(const char *host)
{
    char name[HOST_BYTES_MAX + 1];
    size_t size = strlen(host);
    bool brackets = size > 1 && host[0] == '[' && host[size - 1] == ']';
    snprintf(name, sizeof name, "%.*s", (int)(brackets ? size - 2 : size), host + brackets);
    if (is_local_name(name))
        return true;
    const struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *address = NULL;
    if (getaddrinfo(name, NULL, &numeric, &address) != 0)
        return false;
    bool local = is_local_address(address->ai_addr);
    freeaddrinfo(address);
    return local;
}

/* Is `host` one of those in `hosts`? */
static bool is_listed(const char *hosts, const char *host)
{
    size_t size = strlen(host);
    for (const char *at = hosts; (at = strstr(at, host)) != NULL; at++)
        if ((at == hosts || at[-1] == ' ') && (at[size] == ',' || at[size] == '\0'))
            return true;
    return false;
}

void exposure_add_host(struct exposure *exposure, struct span host)
{
    /* A password with a bare @ in it reaches into what is then the host. */
    const char *at = host.size ? memrchr(host.data, '@', host.size) : NULL;
    size_t skip = at ? (size_t)(at - host.data) + 1 : 0;
    char name[HOST_BYTES_MAX + 1];
    snprintf(name, sizeof name, "%.*s", (int)(host.size - skip), host.size ? host.data + skip : "");
    char *hosts = exposure->hosts;
    size_t used = strlen(hosts), room = sizeof exposure->hosts - used;
    if (name[0] == '\0' || exposure_is_local(name) || is_listed(hosts, name))
        return;
    bool full = used >= sizeof AND_MORE && strcmp(hosts + used - strlen(AND_MORE), AND_MORE) == 0;
    if (full)
        return;
    if (used + strlen(name) + 2 + sizeof AND_MORE <= sizeof exposure->hosts)
        snprintf(hosts + used, room, "%s%s", used ? ", " : "", name);
    else if (used)
        snprintf(hosts + used, room, AND_MORE);
    else
        snprintf(hosts, room, "%.*s...", (int)(sizeof exposure->hosts - sizeof "..."), name);
}
