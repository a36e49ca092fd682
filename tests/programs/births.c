/* Threads that come one after another, so that each is given the memory of the one before: the
   first calls a function 100 times, the second 200 times, and so on. With "together" all run at
   the same time; with "idle" so does another that does nothing, from one line of input to the
   next. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_barrier_t barrier;
static int is_together;

__attribute__((noinline)) int work(int i) {
    __asm__ volatile("");
    return i + 1;
}

static void *calls(void *times) {
    for (long i = 0; i < (long)times; i++)
        work(i);
    printf("%ld %ld\n", syscall(SYS_gettid), (long)times);
    fflush(stdout);
    if (is_together)
        pthread_barrier_wait(&barrier);
    return NULL;
}

static void *rests(void *unused) {
    pthread_barrier_wait(&barrier);
    return unused;
}

int main(int argc, char **argv) {
    long count = atol(argv[1]);
    pthread_t threads[count];
    int is_idle = argc > 2 && !strcmp(argv[2], "idle");
    is_together = is_idle || (argc > 2 && !strcmp(argv[2], "together"));
    pthread_barrier_init(&barrier, NULL, count + 2 * is_idle);
    if (is_idle) {
        pthread_t idle;
        puts("ready");
        fflush(stdout);
        getchar();
        pthread_create(&idle, NULL, rests, NULL);
    }
    for (long i = 0; i < count; i++) {
        pthread_create(&threads[i], NULL, calls, (void *)(100 * (i + 1)));
        if (!is_together)
            pthread_join(threads[i], NULL);
    }
    if (is_idle) {
        getchar();
        rests(NULL);
    }
    for (long i = 0; is_together && i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
