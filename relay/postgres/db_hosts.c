/* DESIGN. The string's lists of hosts, addresses and ports are taken apart into servers. A server whose name has to be
 * looked up gets a lookup; one that an earlier attempt has begun for the name, and given up waiting for, is taken over,
 * so that a name server which takes longer than an attempt is heard in the end, and no more than one thread a name
 * hangs. */
#include "relay/postgres/db_hosts.h"

#include "relay/base/arena.h"
#include "relay/base/lookup.h"
#include "relay/postgres/conninfo.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct server {
    char *host, *hostaddr, *port; /* "": not given; all texts are ours */
    struct lookup *lookup;        /* NULL: none is needed, or it could not begin */
    bool unknown;                 /* left out; `left_out` says why */
};

struct db_hosts {
    const char *conninfo;
    struct server *servers;
    size_t count;
    bool looked_up;                /* there are names among them */
    bool has_addresses, has_ports; /* the string has */
    instant_us begun_at;
    char *host, *hostaddr, *port; /* the lists, NULL before there are any */
    struct listed {
        const struct server *server;
        const char *address; /* the server's or its lookup's */
    } * listed;              /* those that can be called */
    size_t listed_count, skipped_count;
    char left_out[ERROR_TEXT_MAX];
};

struct db_hosts *db_hosts_new(const char *conninfo)
{
    struct db_hosts *hosts = memory_new(sizeof *hosts);
    hosts->conninfo = conninfo;
    return hosts;
}

static void servers_free(struct server *servers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        lookup_free(servers[i].lookup);
        free(servers[i].host);
        free(servers[i].hostaddr);
        free(servers[i].port);
    }
    free(servers);
}

static void forget_lists(struct db_hosts *hosts)
{
    free(hosts->host);
    free(hosts->hostaddr);
    free(hosts->port);
    hosts->host = hosts->hostaddr = hosts->port = NULL;
    free(hosts->listed);
    hosts->listed = NULL;
    hosts->listed_count = 0;
    hosts->left_out[0] = '\0';
}

void db_hosts_free(struct db_hosts *hosts)
{
    if (!hosts)
        return;
    servers_free(hosts->servers, hosts->count);
    forget_lists(hosts);
    free(hosts);
}

/* ---- the string taken apart ---- */

static size_t entries(const char *list)
{
    size_t count = list && list[0] ? 1 : 0;
    for (const char *c = list; c && *c; c++)
        count += *c == ',';
    return count;
}

/* Of a list that has one entry for all, that one. */
static char *entry(const char *list, size_t index)
{
    if (!list || !list[0])
        return memory_text("");
    for (size_t i = 0; i < index && strchr(list, ','); i++)
        list = strchr(list, ',') + 1;
    char *text = memory_text(list);
    text[strcspn(text, ",")] = '\0';
    return text;
}

static bool is_name(const struct server *server)
{
    return server->hostaddr[0] == '\0' && server->host[0] != '\0' && server->host[0] != '/' && server->host[0] != '@' &&
           lookup_is_needed(server->host);
}

/* Lists of different lengths are libpq's to refuse, which it does before it looks anything up. */
static void take_apart(struct db_hosts *hosts)
{
    PQconninfoOption *options = conninfo_options(hosts->conninfo);
    const char *host = conninfo_option(options, "host"), *hostaddr = conninfo_option(options, "hostaddr");
    const char *port = conninfo_option(options, "port");
    size_t names = entries(host), addresses = entries(hostaddr), ports = entries(port);
    size_t count = names > 0 ? names : addresses;
    bool even = (addresses == 0 || addresses == count) && (ports <= 1 || ports == count);
    hosts->has_addresses = addresses > 0;
    hosts->has_ports = ports > 0;
    hosts->count = even ? count : 0;
    hosts->servers = memory_array(hosts->count + 1, sizeof(struct server));
    for (size_t i = 0; i < hosts->count; i++) {
        struct server *server = &hosts->servers[i];
        server->host = entry(host, i);
        server->hostaddr = entry(hostaddr, i);
        server->port = entry(port, ports > 1 ? i : 0);
        hosts->looked_up |= is_name(server);
    }
    PQconninfoFree(options);
}

/* `old`: what had been found out was for an attempt of long ago. */
static struct lookup *take_over(struct server *servers, size_t count, const char *name, bool old)
{
    for (size_t i = 0; i < count; i++) {
        struct lookup *lookup = servers[i].lookup;
        if (!lookup || strcmp(lookup_name(lookup), name) != 0 || (old && lookup_is_done(lookup)))
            continue;
        servers[i].lookup = NULL;
        return lookup;
    }
    return NULL;
}

static void leave_out(struct db_hosts *hosts, struct server *server, const char *why)
{
    size_t used = strlen(hosts->left_out);
    snprintf(hosts->left_out + used, sizeof hosts->left_out - used, "%s%s", used ? "; " : "", why);
    server->unknown = true;
}

void db_hosts_begin(struct db_hosts *hosts, instant_us now)
{
    struct server *before = hosts->servers;
    size_t before_count = hosts->count;
    bool old = now - hosts->begun_at > LOOKUP_AGE_MAX_US;
    forget_lists(hosts);
    hosts->begun_at = now;
    hosts->looked_up = false;
    take_apart(hosts);
    for (size_t i = 0; i < hosts->count; i++) {
        struct server *server = &hosts->servers[i];
        struct error err;
        if (!is_name(server))
            continue;
        server->lookup = take_over(before, before_count, server->host, old);
        if (!server->lookup && !(server->lookup = lookup_start(server->host, &err)))
            leave_out(hosts, server, err.text);
    }
    servers_free(before, before_count);
}

/* ---- the lists put together ---- */

static void append(char **list, const char *comma, const char *text)
{
    size_t used = *list ? strlen(*list) : 0, size = strlen(comma) + strlen(text) + 1;
    *list = memory_resize(*list, used + size, 1);
    snprintf(*list + used, size, "%s%s", comma, text);
}

static void repeat(char **list)
{
    char *once = memory_text(*list);
    append(list, ",", once);
    free(once);
}

/* libpq takes an empty setting for none and falls back on the string's. So what is one empty entry becomes two. */
static void protect_empty(struct db_hosts *hosts)
{
    bool empty =
        !hosts->host[0] || (hosts->has_addresses && !hosts->hostaddr[0]) || (hosts->has_ports && !hosts->port[0]);
    if (!empty)
        return;
    repeat(&hosts->host);
    repeat(&hosts->hostaddr);
    repeat(&hosts->port);
}

static void add(struct db_hosts *hosts, const struct server *server, const char *address)
{
    hosts->listed = memory_resize(hosts->listed, hosts->listed_count + 1, sizeof *hosts->listed);
    hosts->listed[hosts->listed_count++] = (struct listed){server, address};
}

static void add_found(struct db_hosts *hosts, struct server *server, int64_t patience_us)
{
    struct error err;
    if (!lookup_is_done(server->lookup)) {
        error_set(&err, ERROR_UNREACHABLE, "could not translate host name \"%s\" to address: no answer within %d s",
                  server->host, (int)(patience_us / SECOND_US));
        leave_out(hosts, server, err.text);
        return;
    }
    size_t found = lookup_count(server->lookup, &err);
    if (found == 0)
        leave_out(hosts, server, err.text);
    for (size_t i = 0; i < found; i++)
        add(hosts, server, lookup_address(server->lookup, i));
}

/* What has been found serves one attempt. */
static void forget_found(struct db_hosts *hosts)
{
    for (size_t i = 0; i < hosts->count; i++) {
        struct server *server = &hosts->servers[i];
        if (!server->lookup || !lookup_is_done(server->lookup))
            continue;
        lookup_free(server->lookup);
        server->lookup = NULL;
    }
}

static void put_together(struct db_hosts *hosts, int64_t patience_us)
{
    for (size_t i = 0; i < hosts->count; i++) {
        struct server *server = &hosts->servers[i];
        if (server->lookup)
            add_found(hosts, server, patience_us);
        else if (!server->unknown)
            add(hosts, server, server->hostaddr);
    }
    for (size_t i = 0; i < hosts->listed_count; i++) {
        struct listed one = hosts->listed[(hosts->skipped_count + i) % hosts->listed_count];
        const char *comma = i > 0 ? "," : "";
        append(&hosts->host, comma, one.server->host);
        append(&hosts->hostaddr, comma, one.address);
        append(&hosts->port, comma, one.server->port);
    }
    if (hosts->listed_count == 1)
        protect_empty(hosts);
    forget_found(hosts);
}

/* ---- an attempt ---- */

static bool is_pending(const struct server *server)
{
    return server->lookup && !lookup_is_done(server->lookup);
}

static bool is_known(const struct server *server)
{
    return server->lookup ? lookup_is_done(server->lookup) && lookup_count(server->lookup, NULL) > 0 : !server->unknown;
}

static int64_t patience_us(const struct db_hosts *hosts)
{
    for (size_t i = 0; i < hosts->count; i++)
        if (is_known(&hosts->servers[i]))
            return DB_HOSTS_OTHERS_US;
    return DB_HOSTS_PATIENCE_US;
}

void db_hosts_prepare(const struct db_hosts *hosts, struct pollset *ps)
{
    bool pending = false;
    for (size_t i = 0; i < hosts->count; i++) {
        if (!is_pending(&hosts->servers[i]))
            continue;
        lookup_prepare(hosts->servers[i].lookup, ps);
        pending = true;
    }
    /* None: the last has come to its end since the turn. */
    pollset_deadline(ps, pending ? hosts->begun_at + patience_us(hosts) : 0);
}

enum db_hosts_state db_hosts_turn(struct db_hosts *hosts, instant_us now, struct error *err)
{
    if (!hosts->looked_up && (hosts->skipped_count == 0 || hosts->count < 2))
        return DB_HOSTS_READY;
    int64_t patience = patience_us(hosts);
    for (size_t i = 0; i < hosts->count; i++)
        if (is_pending(&hosts->servers[i]) && now < hosts->begun_at + patience)
            return DB_HOSTS_PENDING;
    put_together(hosts, patience);
    if (hosts->listed_count > 0)
        return DB_HOSTS_READY;
    error_set(err, ERROR_UNREACHABLE, "%s", hosts->left_out);
    return DB_HOSTS_FAILED;
}

struct db_hosts_list db_hosts_list(const struct db_hosts *hosts)
{
    return (struct db_hosts_list){hosts->host, hosts->hostaddr, hosts->port};
}

#define DEFAULTS_MAX 8

/* Of two settings of one name the later counts: the user's go before defaults, and our lists, which are made of the
 * user's, before those. */
PGconn *db_hosts_connect(const struct db_hosts *hosts, const char *application_name, const struct db_default *defaults)
{
    const char *names[DEFAULTS_MAX + 6] = {"fallback_application_name"}, *values[DEFAULTS_MAX + 6] = {application_name};
    size_t count = 1;
    for (; defaults->name; defaults++) {
        assert(count <= DEFAULTS_MAX);
        names[count] = defaults->name;
        values[count++] = defaults->value;
    }
    const struct db_default last[] = {
        {"dbname", hosts->conninfo}, {"host", hosts->host}, {"hostaddr", hosts->hostaddr}, {"port", hosts->port}};
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++) {
        names[count] = last[i].name;
        values[count++] = last[i].value;
    }
    return PQconnectStartParams(names, values, 1);
}

void db_hosts_pass_over(struct db_hosts *hosts)
{
    hosts->skipped_count++;
}

void db_hosts_settle(struct db_hosts *hosts)
{
    hosts->skipped_count = 0;
    hosts->left_out[0] = '\0'; /* does not explain what comes later */
}

void db_hosts_explain(const struct db_hosts *hosts, struct error *err)
{
    size_t used = strlen(err->text);
    if (hosts->left_out[0] && !strstr(err->text, hosts->left_out))
        snprintf(err->text + used, sizeof err->text - used, "; %s", hosts->left_out);
}
