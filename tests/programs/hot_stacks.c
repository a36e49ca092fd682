/* Threads that never rest, each in code of its own kind: whenever one looks, its calls are among those below. Checks its own
   results; prints "ready" when all run, and "done" when standard input ends and nothing went wrong. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define apart __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" ::: "memory")

static pthread_barrier_t barrier;
static volatile int goes_on = 1;

apart static long leaf(long value) {
    for (int i = 0; i < 3; i++) value = value * 5 + 1;
    KEEP;
    return value;
}
apart static long other_leaf(long value) { KEEP; return value ^ 21; }
apart static long framed(long value) {
    volatile char room[value % 64 + 16];
    room[3] = value;
    long sum = leaf(value) + room[3];
    KEEP;
    return sum;
}
static long (*volatile const CALLED[])(long) = {leaf, other_leaf, framed};

apart static long middle(long value) {
    for (int i = 0; i < 7; i++) {
        value += CALLED[i % 3](value);
        KEEP;
    }
    return value;
}
apart static long recursive(long depth) {
    long value = depth ? recursive(depth - 1) + depth : middle(3);
    KEEP;
    return value;
}
apart static void in_calls(void) {
    long first = recursive(20);
    while (goes_on) if (recursive(20) != first) abort();
    KEEP;
}
apart static int compare(const void *a, const void *b) {
    int order = *(const int *)a - *(const int *)b;
    KEEP;
    return order;
}
apart static void in_library(void) {
    int numbers[40];
    while (goes_on) {
        for (int i = 0; i < 40; i++) numbers[i] = i * 31 % 40;
        qsort(numbers, 40, sizeof *numbers, compare);
        for (int i = 0; i < 40; i++) if (numbers[i] != i) abort();
    }
    KEEP;
}
apart static void in_system_calls(void) {
    int id = getpid();
    while (goes_on) {
        struct timespec now;
        if (syscall(SYS_getpid) != id || clock_gettime(CLOCK_MONOTONIC, &now)) abort();
    }
    KEEP;
}

static long expected;
static __thread volatile long count;
apart static void on_signal(int number) {
    (void)number;
    if (middle(7) != expected) abort();
    count++;
    KEEP;
}
apart static void interrupted(void) {
    long first = recursive(3);
    while (goes_on) if (recursive(3) != first) abort();
    KEEP;
}
static void with_timer(int number, int flags) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags | SA_RESTART};
    sigaction(number, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = number};
    event._sigev_un._tid = syscall(SYS_gettid);
    timer_t timer;
    struct itimerspec often = {{0, 500000}, {0, 500000}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &often, NULL)) abort();
    interrupted();
    timer_delete(timer);
    if (!count) abort();
    KEEP;
}
apart static void in_signals(void) { with_timer(SIGUSR1, 0); KEEP; }
apart static void in_other_stack(void) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, NULL);
    with_timer(SIGUSR2, SA_ONSTACK);
    KEEP;
}

static void (*const WAYS[])(void) = {in_calls, in_library, in_system_calls, in_signals, in_other_stack};
enum { COUNT = sizeof WAYS / sizeof *WAYS };

apart static void *begin(void *way) {
    char name[16];
    snprintf(name, sizeof name, "way %ld", (long)way);
    pthread_setname_np(pthread_self(), name);
    pthread_barrier_wait(&barrier);
    WAYS[(long)way]();
    KEEP;
    return NULL;
}

int main(void) {
    pthread_t threads[COUNT];
    expected = middle(7);
    pthread_barrier_init(&barrier, NULL, COUNT + 1);
    for (long way = 0; way < COUNT; way++) pthread_create(&threads[way], NULL, begin, (void *)way);
    pthread_barrier_wait(&barrier);
    puts("ready");
    fflush(stdout);
    getchar();
    goes_on = 0;
    for (int way = 0; way < COUNT; way++) pthread_join(threads[way], NULL);
    puts("done");
    return 0;
}
