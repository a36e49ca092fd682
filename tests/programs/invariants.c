/* A program that notices when something is done to it.
 *
 *   invariants THREADS CHURN
 *
 * starts THREADS threads with different habits, CHURN of which do nothing but create and join other
 * threads. Each checks what it can know: that calls do not fail or return early, that no wake-up and no
 * signal is lost, that registers keep their values. Prints "ready" and obeys its standard input:
 *
 *   rest   nobody maps memory, opens files or sends signals until "go"; answers "resting"
 *   go     everybody goes on
 *   stop   (or the end of the input) checks that everybody got on with their work, prints what was done
 *          and exits with 7
 *
 * An epoll_wait that fails with EINTR is counted, not wrong: signal(7) says that it does after a stop.
 *
 * If anything is wrong it exits with 1 and the reason on standard error. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 1024

static atomic_bool stopping;
static atomic_bool resting;
static atomic_int rested;
static atomic_ulong interruptions;
static atomic_ulong progress[MAX_THREADS];

static void wrong(int thread, const char *what, long value) {
    fprintf(stderr, "thread %d: %s (%ld, %s)\n", thread, what, value, strerror(errno));
    _exit(1);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* Registers, general and vector, hold what was put there, for a while and across a loop. */
static void spin(int thread) {
    uint64_t seed = 0x9e3779b97f4a7c15ull * (thread + 1);
    uint64_t bad = 0;
    for (int round = 0; round < 1000; round++) {
        asm volatile(
            "movq %1, %%xmm0\n punpcklqdq %%xmm0, %%xmm0\n movdqa %%xmm0, %%xmm7\n"
            "movdqa %%xmm0, %%xmm15\n mov %1, %%r12\n mov %1, %%r15\n mov %1, %%rcx\n std\n"
            "mov $50, %%eax\n"
            "1: dec %%eax\n jnz 1b\n"
            "cld\n"
            "movq %%xmm7, %%rdx\n cmp %1, %%rdx\n jne 2f\n"
            "movhlps %%xmm15, %%xmm7\n movq %%xmm7, %%rdx\n cmp %1, %%rdx\n jne 2f\n"
            "cmp %1, %%r12\n jne 2f\n cmp %1, %%r15\n jne 2f\n cmp %1, %%rcx\n jne 2f\n"
            "jmp 3f\n 2: inc %0\n 3:\n"
            : "+r"(bad)
            : "r"(seed)
            : "rax", "rcx", "rdx", "r12", "r15", "xmm0", "xmm7", "xmm15", "cc");
        seed = seed * 6364136223846793005ull + 1;
    }
    if (bad) wrong(thread, "a register changed", bad);
}

/* Two threads pass a token to and fro. */
struct pair {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int turn;
    int pipes[2][2];
    int event, poller;
    sem_t answer, born;
    pthread_t first;
    atomic_ulong handled;
} pairs[MAX_THREADS];

static void pass_by_condition(int thread, struct pair *p, int side) {
    pthread_mutex_lock(&p->mutex);
    while (p->turn != side && !stopping) pthread_cond_wait(&p->changed, &p->mutex);
    p->turn = !side;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    (void)thread;
}

static void pass_by_pipe(int thread, struct pair *p, int side) {
    char byte = 0;
    ssize_t n;
    if (side == 0 && (n = write(p->pipes[0][1], "x", 1)) != 1) wrong(thread, "write", n);
    if ((n = read(p->pipes[!side][0], &byte, 1)) != 1 || byte != 'x') wrong(thread, "read", n);
    if (side == 1 && (n = write(p->pipes[1][1], "x", 1)) != 1) wrong(thread, "write", n);
}

static void pass_by_epoll(int thread, struct pair *p, int side) {
    if (side == 1) {
        uint64_t one = 1;
        if (write(p->event, &one, 8) != 8) wrong(thread, "write to eventfd", 0);
        if (sem_wait(&p->answer)) wrong(thread, "sem_wait", 0);
        return;
    }
    struct epoll_event event;
    int n;
    while ((n = epoll_wait(p->poller, &event, 1, -1)) == -1 && errno == EINTR) interruptions++;
    uint64_t count;
    if (n != 1 || read(p->event, &count, 8) != 8 || (count != 1 && !stopping))
        wrong(thread, "epoll_wait", n);
    sem_post(&p->answer);
}

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    atomic_fetch_add(&pairs[info->si_value.sival_int].handled, 1);
}

/* One sends signals, the other sleeps in calls that signals interrupt; none may be lost. */
static void pass_by_signal(int thread, struct pair *p, int side) {
    if (side == 1) {
        struct timespec pause = {0, 200000};
        int error = nanosleep(&pause, NULL);
        if (error && errno != EINTR) wrong(thread, "nanosleep", error);
        return;
    }
    unsigned long before = p->handled;
    union sigval value = {.sival_int = (int)(p - pairs)};
    int error = pthread_sigqueue(p->first, SIGUSR1, value);
    /* In the end it may have left. */
    if (error && !(error == ESRCH && stopping)) wrong(thread, "sigqueue", error);
    int64_t deadline = now() + 20000000000ll;
    while (p->handled == before && !stopping) {
        if (now() > deadline) wrong(thread, "a signal was lost", 0);
        sched_yield();
    }
}

static void sleep_exactly(int thread) {
    struct timespec pause = {0, 1000000};
    int64_t begin = now();
    int error = nanosleep(&pause, NULL);
    if (error || now() - begin < 1000000) wrong(thread, "nanosleep", now() - begin);
}

static void poll_exactly(int thread) {
    int64_t begin = now();
    int n = poll(NULL, 0, 2);
    if (n || now() - begin < 2000000) wrong(thread, "poll", n);
}

static void futex_exactly(int thread) {
    uint32_t word = 0;
    struct timespec pause = {0, 1000000};
    int64_t begin = now();
    long n = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &pause, NULL, 0);
    if (n != -1 || errno != ETIMEDOUT || now() - begin < 1000000) wrong(thread, "futex", n);
}

static void *newborn(void *argument) {
    volatile long work = 0;
    for (int i = 0; i < 2000; i++) work += i;
    return (char *)argument + (work == 1999000);
}

/* Small stacks stay in glibc's cache, so that the memory map is the same whenever all rest. */
static pthread_attr_t small;

static void churn(int thread) {
    pthread_t child;
    void *result = NULL;
    if (pthread_create(&child, &small, newborn, (void *)(uintptr_t)thread))
        wrong(thread, "create", 0);
    if (pthread_join(child, &result) || (uintptr_t)result != (uintptr_t)thread + 1)
        wrong(thread, "join", (long)(uintptr_t)result);
}

static int churners;

/* How the threads of a pair spend their time. */
enum { SPINNING, CONDITIONS, PIPES, EPOLLS, SIGNALS, SLEEPS, POLLS, FUTEXES, WAYS };

static bool is_signalling(int pair) { return pair % WAYS == SIGNALS; }

static void *live(void *argument) {
    int thread = (int)(uintptr_t)argument;
    int index = thread - churners;
    struct pair *p = index >= 0 ? &pairs[index / 2] : NULL;
    if (p && index % 2 == 1) p->first = pthread_self(), sem_post(&p->born);
    bool is_restless = !p || (is_signalling(index / 2) && index % 2 == 0);
    while (!stopping) {
        if (resting && is_restless) {
            rested++;
            while (resting) usleep(1000);
            rested--;
        }
        if (thread < churners) {
            churn(thread);
        } else {
            switch (index / 2 % WAYS) {
            case SPINNING: spin(thread); break;
            case CONDITIONS: pass_by_condition(thread, p, index % 2); break;
            case PIPES: pass_by_pipe(thread, p, index % 2); break;
            case EPOLLS: pass_by_epoll(thread, p, index % 2); break;
            case SIGNALS: pass_by_signal(thread, p, index % 2); break;
            case SLEEPS: sleep_exactly(thread); break;
            case POLLS: poll_exactly(thread); break;
            case FUTEXES: futex_exactly(thread); break;
            }
        }
        progress[thread]++;
    }
    return NULL;
}

/* When the program ends, a thread may wait for a partner that has left: release it. */
static void release(int threads) {
    for (int i = 0; i < threads; i++) {
        uint64_t one = 1;
        pthread_mutex_lock(&pairs[i].mutex);
        pthread_cond_broadcast(&pairs[i].changed);
        pthread_mutex_unlock(&pairs[i].mutex);
        sem_post(&pairs[i].answer);
        if (write(pairs[i].pipes[0][1], "x", 1) != 1 || write(pairs[i].pipes[1][1], "x", 1) != 1 ||
            write(pairs[i].event, &one, 8) != 8)
            wrong(i, "release", 0);
    }
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 64;
    churners = argc > 2 ? atoi(argv[2]) : 8;
    int others = (threads - churners) & ~1;
    int pair_count = others / 2;
    threads = churners + others;
    static pthread_t ids[MAX_THREADS];
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < pair_count; i++) {
        pthread_mutex_init(&pairs[i].mutex, NULL);
        pthread_cond_init(&pairs[i].changed, NULL);
        sem_init(&pairs[i].answer, 0, 0);
        sem_init(&pairs[i].born, 0, 0);
        if (pipe(pairs[i].pipes[0]) || pipe(pairs[i].pipes[1])) wrong(i, "pipe", 0);
        pairs[i].event = eventfd(0, EFD_CLOEXEC);
        pairs[i].poller = epoll_create1(EPOLL_CLOEXEC);
        struct epoll_event event = {.events = EPOLLIN};
        if (epoll_ctl(pairs[i].poller, EPOLL_CTL_ADD, pairs[i].event, &event))
            wrong(i, "epoll_ctl", 0);
    }
    /* The second of a pair first: its partner has to know it. */
    for (int i = 0; i < pair_count; i++) {
        int thread = churners + 2 * i + 1;
        pthread_create(&ids[thread], NULL, live, (void *)(uintptr_t)thread);
        while (sem_wait(&pairs[i].born)) {}
        pthread_create(&ids[thread - 1], NULL, live, (void *)(uintptr_t)(thread - 1));
    }
    for (int i = 0; i < churners; i++)
        pthread_create(&ids[i], NULL, live, (void *)(uintptr_t)i);
    puts("ready");
    fflush(stdout);

    int restless = churners;
    for (int i = 0; i < pair_count; i++) restless += is_signalling(i);
    char line[16];
    while (fgets(line, sizeof line, stdin) && strcmp(line, "stop\n")) {
        resting = !strcmp(line, "rest\n");
        while (rested != (resting ? restless : 0)) usleep(1000);
        puts(resting ? "resting" : "going");
        fflush(stdout);
    }
    resting = false;
    unsigned long before[MAX_THREADS];
    for (int i = 0; i < threads; i++) before[i] = progress[i];
    /* Nobody may be stuck: all get on within a time that is long even for a slow machine. */
    int64_t deadline = now() + 30000000000ll;
    for (int i = 0; i < threads; i++)
        while (progress[i] == before[i]) {
            if (now() > deadline) wrong(i, "no progress: a wake-up was lost", progress[i]);
            usleep(1000);
        }
    stopping = true;
    release(pair_count);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    printf("%d threads kept their invariants\n", threads);
    printf("%lu calls of epoll_wait were interrupted\n", interruptions);
    return 7;
}
