// Threads of which one runs at a time: each hands on to the next, which begins only when the one
// before it sleeps. So a debugger sees the same order in each run.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 4 };

volatile long scratch; // set
long total;            // watch
static volatile int turns[THREADS + 1];
static __thread long own;
static int rounds;

int twice(int number) { // call
    return number * 2;
}

// Waits until another thread waits for its turn: who waits can be moved, to where it is already, and
// is counted.
static void settle(int other) {
    while (syscall(SYS_futex, &turns[other], FUTEX_CMP_REQUEUE, 0, 1, &turns[other], 0) != 1)
        syscall(SYS_sched_yield); // which leaves the stack as it was
}

// How many this has woken depends on whether a debugger did so before: nobody is told.
static void wake(int other) {
    syscall(SYS_futex, &turns[other], FUTEX_WAKE, 1, NULL, NULL, 0);
}

static int hand(int to) {
    turns[to] = 1;
    wake(to);
    return to;
}

static void await(int me, int before) {
    while (!turns[me]) syscall(SYS_futex, &turns[me], FUTEX_WAIT, 0, NULL, NULL, 0);
    turns[me] = 0;
    settle(before);
}

static long work(int number, int round) {
    long sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += (long)number * i;
        own += sum % 7;
    }
    total += twice(round) + own;
    return sum;
}

static void *worker(void *argument) {
    int number = (int)(long)argument;
    int before = number == 1 ? THREADS : number - 1;
    char name[] = "worker 0";
    name[7] += (char)number;
    pthread_setname_np(pthread_self(), name);
    settle(0);
    hand(0);
    await(number, number == 1 ? 0 : before);
    for (int round = 0; round < rounds; round++) {
        scratch += work(number, round);
        hand(number % THREADS + 1);
        await(number, before);
    }
    hand(0);
    await(number, 0); // for ever
    return NULL;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atoi(argv[1]) : 10;
    pthread_t threads[THREADS + 1];
    for (long i = 1; i <= THREADS; i++) {
        pthread_create(&threads[i], NULL, worker, (void *)i);
        await(0, (int)i);
    }
    hand(1);
    await(0, 1);
    printf("%ld %ld\n", total, scratch);
    return 0;
}
