/* tests/contract/redis/redis_server.h -- a real redis-server on a Unix socket of its own, and an eye on what arrives.
 *
 *   server_start -> (tell | count | look)* -> server_stop */
#ifndef TESTS_CONTRACT_REDIS_SERVER_H
#define TESTS_CONTRACT_REDIS_SERVER_H

#include "relay/base/clock.h"

#include <check.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 30000

static char directory[64], path[96], url[128];
static pid_t server;
static redisContext *eye; /* looks at what arrived */

static inline void server_start(void)
{
    const char *folder = getenv("TMPDIR");
    int length = snprintf(directory, sizeof directory, "%s/pgcourier-redis-XXXXXX", folder ? folder : "/tmp");
    if (length < 0 || (size_t)length >= sizeof directory)
        abort();
    if (!mkdtemp(directory))
        abort();
    snprintf(path, sizeof path, "%s/redis.sock", directory);
    snprintf(url, sizeof url, "unix://%s", path);
    server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that crashes leaves nothing behind */
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(null, STDOUT_FILENO);
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no",
               "--dir", directory, (char *)NULL);
        _exit(127);
    }
    for (instant_us end = clock_now() + PATIENCE_MS * MS_US; clock_now() < end; usleep(5000)) {
        eye = redisConnectUnix(path);
        if (eye && !eye->err)
            return;
        redisFree(eye);
    }
    fprintf(stderr, "redis-server does not start: is it installed?\n");
    exit(EXIT_FAILURE);
}

static inline void server_stop(void)
{
    redisFree(eye);
    kill(server, SIGTERM);
    waitpid(server, NULL, 0);
    unlink(path);
    rmdir(directory);
}

static inline redisReply *look(const char *command)
{
    redisReply *reply = redisCommand(eye, command);
    ck_assert_msg(reply != NULL, "%s: %s", command, eye->errstr);
    return reply;
}

static inline void tell(const char *command)
{
    redisReply *reply = look(command);
    ck_assert_msg(reply->type != REDIS_REPLY_ERROR, "%s: %s", command, reply->str);
    freeReplyObject(reply);
}

static inline long long count(const char *command)
{
    redisReply *reply = look(command);
    ck_assert_msg(reply->type == REDIS_REPLY_INTEGER, "%s: %s", command, reply->str);
    long long number = reply->integer;
    freeReplyObject(reply);
    return number;
}

#endif
