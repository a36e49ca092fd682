// Threads that compute, hand over, allocate, take signals, are born and die; each checks that what it
// sees is what it must see. Works until its input ends.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static atomic_bool finished;
static atomic_ulong ticks;

static void fail(const char *what) {
    printf("broken: %s\n", what);
    fflush(stdout);
    _exit(1);
}

static void check(int holds, const char *what) {
    if (!holds) fail(what);
}

// Integers, floating point and vectors: the result is the same in every round.
static void *compute(void *unused) {
    uint64_t first_hash = 0;
    double first_sum = 0;
    for (int round = 0; round == 0 || !finished; round++) {
        uint64_t hash = 14695981039346656037u;
        double sum = 0, parts[64];
        for (int i = 0; i < 20000; i++) {
            hash = (hash ^ (unsigned)i) * 1099511628211u;
            parts[i % 64] = i * 0.5;
            if (i % 64 == 63)
                for (int k = 0; k < 64; k++) sum += parts[k] * (k + 1);
        }
        if (round == 0) first_hash = hash, first_sum = sum;
        check(hash == first_hash && sum == first_sum, "a computation changed its result");
    }
    return unused;
}

static void *allocate(void *unused) {
    enum { SLOTS = 64 };
    unsigned char *slots[SLOTS] = {0};
    size_t sizes[SLOTS] = {0};
    for (unsigned i = 0; i < SLOTS || !finished; i++) {
        unsigned slot = i * 7 % SLOTS;
        for (size_t k = 0; k < sizes[slot]; k++)
            check(slots[slot][k] == (unsigned char)slot, "memory changed by itself");
        free(slots[slot]);
        sizes[slot] = 1 + i * 97 % 5000;
        slots[slot] = malloc(sizes[slot]);
        check(slots[slot] != NULL, "no memory");
        memset(slots[slot], (int)slot, sizes[slot]);
    }
    for (int slot = 0; slot < SLOTS; slot++) free(slots[slot]);
    return unused;
}

// Two threads hand a ball over; a lost wake-up would leave both waiting forever.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static unsigned long throws;
static int game_over;

static void *play(void *side) {
    unsigned long mine = (unsigned long)(uintptr_t)side;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!game_over && throws % 2 != mine) pthread_cond_wait(&turned, &lock);
        if (game_over) break;
        throws++;
        if (finished && throws > 1000) game_over = 1;
        pthread_cond_signal(&turned);
    }
    pthread_mutex_unlock(&lock);
    return side;
}

static void *be_born(void *argument) {
    *(int *)argument += 1;
    return argument;
}

static void *give_birth(void *unused) {
    for (int round = 0; round == 0 || !finished; round++) {
        int value = round;
        void *result;
        pthread_t child;
        check(pthread_create(&child, NULL, be_born, &value) == 0, "no thread");
        check(pthread_join(child, &result) == 0 && result == &value, "a thread was lost");
        check(value == round + 1, "a thread did not run once");
    }
    return unused;
}

static void tick(int number) {
    (void)number;
    ticks++;
    errno = EILSEQ;
}

// Signals come all the time; system calls that they interrupt are restarted.
static void *take_signals(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    int pipes[2];
    check(pipe(pipes) == 0, "no pipe");
    for (unsigned char round = 0; !finished; round++) {
        unsigned char got = 0;
        check(write(pipes[1], &round, 1) == 1, "a write failed");
        check(read(pipes[0], &got, 1) == 1 && got == round, "a read failed");
    }
    while (ticks == 0) check(pause() == -1 && errno == EINTR, "pause went wrong");
    return unused;
}

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);

    void *(*work[])(void *) = {compute, allocate, give_birth, take_signals, play, play};
    enum { WORKERS = sizeof work / sizeof *work };
    pthread_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        check(pthread_create(&workers[i], NULL, work[i], (void *)(uintptr_t)(i == WORKERS - 1)) == 0, "no thread");

    struct itimerval timer = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    puts("ready");
    fflush(stdout);
    char byte;
    check(read(0, &byte, 1) == 0, "input did not just end");
    finished = 1;
    for (int i = 0; i < WORKERS; i++) check(pthread_join(workers[i], NULL) == 0, "a worker was lost");
    puts("all is well");
    return 7;
}
