/* Sleeps for moments and forks when it wakes, as servers do that have a process for each client. Whoever
 * changes its code meets children that are just being born.
 *
 * It works until its standard input ends; a child that did not end as it should ends it with exit code 1. With a
 * number as its argument, it has so many megabytes of memory: then a fork takes its time. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define APART __attribute__((noipa))
#define STEP(name, number)                                                                                 \
    APART uint64_t name(uint64_t x) { return (x ^ number) * 1099511628211u; }
STEP(first, 1) STEP(second, 2) STEP(third, 3) STEP(fourth, 4)

enum { BROOD = 6, LIFE = 20 };

/* A moment's sleep in a call that is better not interrupted. */
APART void nap(int queue, long nanoseconds) {
    struct epoll_event event;
    struct timespec moment = {0, nanoseconds};
    if (epoll_pwait2(queue, &event, 1, &moment, NULL) < 0 && errno != EINTR) _exit(1);
}

APART int live(int queue, unsigned long number) {
    for (unsigned i = 0; i < LIFE; i++) {
        uint64_t expected = number;
        for (uint64_t step = 1; step <= 4; step++) expected = (expected ^ step) * 1099511628211u;
        if (fourth(third(second(first(number)))) != expected) return 1;
        nap(queue, 200000);
    }
    return 3;
}

int main(int argc, char **argv) {
    size_t size = argc > 1 ? (size_t)atoi(argv[1]) << 20 : 0;
    char *memory = malloc(size);
    for (size_t at = 0; at < size; at += 4096) memory[at] = 1;
    int queue = epoll_create1(EPOLL_CLOEXEC), living = 0;
    unsigned long born = 0;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    puts("ready");
    fflush(stdout);
    while (poll(&input, 1, 0) == 0) {
        nap(queue, 1000 + born % 7 * 30000);
        first(born);
        pid_t child = fork();
        if (child < 0) return 2;
        if (child == 0) _exit(live(queue, born));
        born++, living++;
        while (living > 0) {
            int status;
            pid_t ended = waitpid(-1, &status, living < BROOD ? WNOHANG : 0);
            if (ended == 0) break;
            if (ended < 0) {
                if (errno == EINTR) continue;
                return 2;
            }
            living--;
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 3) {
                printf("a child ended with %#x\n", status);
                return 1;
            }
        }
    }
    while (wait(NULL) > 0) continue;
    printf("%lu were born\n", born);
    return 0;
}
