/* A server that knows how long it takes to answer: it looks at the clock before and after each call of
 * handle_request(), so that the network is not part of it.
 *
 *   PROGRAM    prints the port that it listens on, and serves one client at a time, line by line:
 *
 *   work N     works for about N microseconds: "done"
 *   truth      how long it took since it was last asked, as one line of JSON: the count, the mean, the
 *              median and the 99th percentile, in nanoseconds
 *
 * At the end of its standard input it ends with the exit code 7. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST 100000
static long times[MOST];
static int count;

#define check(holds, what) ((holds) ? (void)0 : (printf("broken: %s\n", what), exit(1)))

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

__attribute__((noipa)) const char *handle_request(const char *line) {
    long end = now() + 1000 * atol(line + 5);
    while (now() < end) continue;
    return "done\n";
}

static int ascending(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

static const char *truth(void) {
    static char text[256];
    long sum = 0;
    qsort(times, count, sizeof *times, ascending);
    for (int i = 0; i < count; i++) sum += times[i];
    check(count > 0, "nothing was measured");
    snprintf(text, sizeof text, "{\"count\": %d, \"mean\": %ld, \"p50\": %ld, \"p99\": %ld}\n", count, sum / count,
             times[(int)(count * 0.5)], times[(int)(count * 0.99)]);
    count = 0;
    return text;
}

static void serve(int client) {
    char line[64];
    ssize_t length;
    while ((length = read(client, line, sizeof line - 1)) > 0) {
        const char *answer;
        line[length] = 0;
        if (strncmp(line, "work ", 5) == 0) {
            check(count < MOST, "too many requests");
            long began = now();
            answer = handle_request(line);
            times[count++] = now() - began;
        } else {
            answer = truth();
        }
        check(write(client, answer, strlen(answer)) > 0, "no answer");
    }
    close(client);
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    check(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0, "no port");
    check(getsockname(listener, (struct sockaddr *)&address, &size) == 0, "no name");
    printf("%d\nready\n", ntohs(address.sin_port));
    fflush(stdout);
    struct pollfd ready[] = {{0, POLLIN, 0}, {listener, POLLIN, 0}};
    while (poll(ready, 2, -1) > 0 && !ready[0].revents) {
        int client = accept(listener, NULL, NULL);
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        serve(client);
    }
    return 7;
}
