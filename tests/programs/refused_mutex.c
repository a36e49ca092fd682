/* Two threads that each hold a mutex with priority inheritance and want the other's; prints "ready" when both do. The
   kernel refuses the second, and glibc lets that thread wait for ever. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t mutexes[2];
static pthread_barrier_t barrier;

static void *take_both(void *number) {
    long own = (long)number;
    pthread_setname_np(pthread_self(), own ? "second" : "first");
    pthread_mutex_lock(&mutexes[own]);
    pthread_barrier_wait(&barrier);
    /* The second is the one that is refused. */
    if (own) sleep(1);
    pthread_mutex_lock(&mutexes[!own]);
    return NULL;
}

int main(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_barrier_init(&barrier, NULL, 3);
    pthread_t threads[2];
    for (long number = 0; number < 2; number++) {
        pthread_mutex_init(&mutexes[number], &attributes);
        pthread_create(&threads[number], NULL, take_both, (void *)number);
    }
    pthread_barrier_wait(&barrier);
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
