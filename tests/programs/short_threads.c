/* Threads that run for ten milliseconds of their own time each, one after the other, beside a first one that waits. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static void *computes(void *unused) {
    struct timespec now;
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (now.tv_sec == 0 && now.tv_nsec < 10000000);
    return unused;
}

int main(void) {
    puts("ready");
    fflush(stdout);
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, computes, NULL)) return 1;
        pthread_join(thread, NULL);
    }
}
