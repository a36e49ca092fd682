/* Threads of which each spends its time in one way. When its input ends, it prints for how long each has
   run, in seconds by its own clock, and ends. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static atomic_int is_over;
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static double ran[4];

static double own_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void nap(long milliseconds)
{
    struct timespec time = {0, milliseconds * 1000000};
    while (nanosleep(&time, &time))
        ;
}

__attribute__((noinline)) static void compute(void)
{
    for (volatile int i = 0; i < 1000000; i++)
        ;
}

static void *computes(void *unused)
{
    while (!is_over)
        compute();
    ran[0] = own_time();
    return unused;
}

__attribute__((noinline)) static void hold(void)
{
    pthread_mutex_lock(&shared_lock);
    nap(5);
    pthread_mutex_unlock(&shared_lock);
}

static void *holds(void *unused)
{
    while (!is_over) {
        hold();
        nap(5);
    }
    ran[1] = own_time();
    return unused;
}

/* Asks for the lock while the other one has it, so that it waits for all of its five milliseconds. */
__attribute__((noinline)) static void contend(void)
{
    pthread_mutex_lock(&shared_lock);
    pthread_mutex_unlock(&shared_lock);
}

static void *contends(void *unused)
{
    while (!is_over) {
        contend();
        nap(1);
    }
    ran[2] = own_time();
    return unused;
}

static void *start(pthread_t *thread, void *(*way)(void *), const char *name)
{
    pthread_create(thread, NULL, way, NULL);
    pthread_setname_np(*thread, name);
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    start(&threads[0], computes, "computes");
    start(&threads[1], holds, "holds");
    start(&threads[2], contends, "contends");
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    is_over = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("%f %f %f\n", ran[0], ran[1], ran[2]);
    return 0;
}
