/* What does an HTTP receiver give a client that does nothing else? requests PORT CONNECTIONS SECONDS keeps as many
 * requests in flight for that long, and prints `ANSWERS SECONDS`. */
#include "relay/base/arena.h"
#include "relay/base/clock.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024
#define BODY_BYTES 300
#define ANSWER_MAX 4096

struct client {
    pthread_t thread;
    int fd;
    const char *request;
    instant_us end_at;
    int64_t answers;
};

_Noreturn static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int connect_to(long port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        fail("connect");
    return fd;
}

/* An answer has no body and comes in one piece. One that comes after the end does not count. */
static void *ask(void *data)
{
    struct client *client = data;
    char answer[ANSWER_MAX];
    size_t size = strlen(client->request);
    while (clock_now() < client->end_at) {
        if (write(client->fd, client->request, size) != (ssize_t)size)
            fail("write");
        if (read(client->fd, answer, sizeof answer) <= 0)
            fail("read");
        if (strncmp(answer, "HTTP/1.1 200 ", strlen("HTTP/1.1 200 ")) != 0)
            fail("an answer that is not 200");
        if (clock_now() < client->end_at)
            client->answers++;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    long port = argc == 4 ? strtol(argv[1], NULL, 10) : 0, connections = port ? strtol(argv[2], NULL, 10) : 0;
    double seconds = port ? strtod(argv[3], NULL) : 0;
    if (connections < 1 || connections > CONNECTIONS_MAX || seconds <= 0) {
        fprintf(stderr, "usage: requests PORT CONNECTIONS SECONDS\n");
        return 1;
    }
    char body[BODY_BYTES + 1], request[BODY_BYTES + 128];
    memset(body, 'x', BODY_BYTES);
    body[BODY_BYTES] = '\0';
    snprintf(request, sizeof request, "POST /in HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
             BODY_BYTES, body);
    struct client *clients = memory_array((size_t)connections, sizeof *clients);
    for (long i = 0; i < connections; i++)
        clients[i] = (struct client){.fd = connect_to(port), .request = request};
    instant_us end_at = clock_now() + (instant_us)(seconds * SECOND_US);
    for (long i = 0; i < connections; i++) {
        clients[i].end_at = end_at;
        if (pthread_create(&clients[i].thread, NULL, ask, &clients[i]) != 0)
            fail("pthread_create");
    }
    int64_t answers = 0;
    for (long i = 0; i < connections; i++) {
        pthread_join(clients[i].thread, NULL);
        close(clients[i].fd);
        answers += clients[i].answers;
    }
    printf("%" PRId64 " %.6f\n", answers, seconds);
    free(clients);
    return 0;
}
