/* A program that knows how long it was kept from running.
 *
 *   gaps THREADS [MICROSECONDS]
 *
 * One thread looks at the clock all the time; the others sleep a millisecond at a time, or as long as is said. For every line on
 * its standard input it prints the longest time, in nanoseconds, between two looks since the last line. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_llong longest;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void *look(void *unused) {
    int64_t last = now();
    for (;;) {
        int64_t time = now();
        if (time - last > longest) longest = time - last;
        last = time;
    }
    return unused;
}

static int nap = 1000;

static void *doze(void *unused) {
    for (;;) usleep(nap);
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    if (argc > 2) nap = atoi(argv[2]);
    pthread_create(&thread, NULL, look, NULL);
    for (int i = 2; i < threads; i++) pthread_create(&thread, NULL, doze, NULL);
    puts("ready");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        printf("%lld\n", atomic_exchange(&longest, 0));
        fflush(stdout);
    }
    return 7;
}
