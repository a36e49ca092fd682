/* Threads that wait at known places, each in a way of its own; prints "ready" when all do. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define apart __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" ::: "memory")

static pthread_barrier_t barrier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static volatile int goes_on = 1;

static inline __attribute__((always_inline)) void ready(void) { pthread_barrier_wait(&barrier); KEEP; }

static void disturbed(void) {
    if (write(1, "disturbed\n", 10) < 0) abort();
}

apart void in_condition(void) {
    pthread_mutex_lock(&lock);
    ready();
    for (;;) pthread_cond_wait(&never, &lock);
}
apart void in_semaphore(void) { ready(); for (;;) sem_wait(&semaphore); }
apart void in_epoll(void) {
    int descriptor = epoll_create1(0);
    struct epoll_event event;
    ready();
    for (;;) if (epoll_wait(descriptor, &event, 1, -1) < 0) disturbed();
}
apart void in_poll(void) { ready(); for (;;) if (poll(NULL, 0, -1) < 0) disturbed(); }
apart void in_sleep(void) {
    struct timespec long_time = {1000, 0};
    ready();
    for (;;) if (nanosleep(&long_time, NULL)) disturbed();
}
apart void in_read(void) {
    char byte;
    int ends[2];
    if (pipe(ends)) abort();
    ready();
    for (;;) if (read(ends[0], &byte, 1) < 0) disturbed();
}
apart void in_loop(void) { ready(); for (;;) KEEP; }
apart int in_recursion(int depth) {
    volatile char room[300];
    room[0] = depth;
    if (depth == 0) {
        ready();
        while (goes_on) pause();
        return 0;
    }
    return in_recursion(depth - 1) + room[0];
}
apart void too_deep(void) { in_recursion(2000); KEEP; }
/* A frame of a size that is known when it runs only: found by the frame pointer. */
apart void in_variable(int size) {
    char room[size];
    memset(room, 1, size);
    __asm__ volatile("" ::"r"(room) : "memory");
    ready();
    for (;;) pause();
}
apart void variable(void) { in_variable(rand() % 7 + 5000); KEEP; }
apart void on_signal(int number) { (void)number; ready(); for (;;) pause(); }
apart void interrupted(void) { raise(SIGUSR1); KEEP; }
apart void in_handler(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    interrupted();
    KEEP;
}
apart void in_other_stack(void) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR2, &action, NULL);
    raise(SIGUSR2);
    KEEP;
}

static void (*const WAYS[])(void) = {
    in_condition, in_semaphore, in_epoll, in_poll, in_sleep, in_read, in_loop,
    too_deep, variable, in_handler, in_other_stack,
};
enum { COUNT = sizeof WAYS / sizeof *WAYS };

apart void *begin(void *way) {
    char name[16];
    snprintf(name, sizeof name, "way %ld", (long)way);
    pthread_setname_np(pthread_self(), name);
    WAYS[(long)way]();
    KEEP;
    return NULL;
}

int main(void) {
    pthread_barrier_init(&barrier, NULL, COUNT + 1);
    sem_init(&semaphore, 0, 0);
    pthread_attr_t large;
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, 4 << 20);
    for (long way = 0; way < COUNT; way++) {
        pthread_t thread;
        pthread_create(&thread, &large, begin, (void *)way);
    }
    ready();
    puts("ready");
    fflush(stdout);
    getchar();
    puts("done");
    return 0;
}
