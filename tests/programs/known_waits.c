/* Waits in one way, that its first argument names, and measures itself for how long. It says "ready"; a line on its
   standard input begins a stretch of time, another one ends it. Then it prints the stretch, and the time that the thread
   "waiter" waited in it, in seconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define apart __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" ::: "memory")

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic long waited, since;
static int ends[2];
static int file;

static long now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void begin(void) { atomic_store(&since, now(CLOCK_MONOTONIC)); }

static void end(void) {
    atomic_fetch_add(&waited, now(CLOCK_MONOTONIC) - atomic_load(&since));
    atomic_store(&since, 0);
}

/* With what it waits for now. */
static long waited_until(long time) {
    long began = atomic_load(&since);
    return atomic_load(&waited) + (began ? time - began : 0);
}

static void compute(long nanoseconds) {
    long start = now(CLOCK_THREAD_CPUTIME_ID);
    while (now(CLOCK_THREAD_CPUTIME_ID) - start < nanoseconds) KEEP;
}

apart void hold_it(void) {
    pthread_mutex_lock(&table_lock);
    usleep(5000);
    pthread_mutex_unlock(&table_lock);
    KEEP;
}
apart void want_it(void) {
    begin();
    pthread_mutex_lock(&table_lock);
    end();
    pthread_mutex_unlock(&table_lock);
}
static void *holder(void *unused) { for (;;) { hold_it(); usleep(500); } return unused; }
static void *lock_waiter(void *unused) { for (;;) { want_it(); usleep(1000); } return unused; }

static void *writer(void *unused) {
    for (;;) {
        usleep(7000);
        if (write(ends[1], "x", 1) != 1) abort();
    }
    return unused;
}
apart void read_it(void) {
    char byte;
    begin();
    if (read(ends[0], &byte, 1) != 1) abort();
    end();
}
static void *pipe_waiter(void *unused) { for (;;) { read_it(); compute(1000000); } return unused; }

apart void sync_it(void) {
    static char block[1 << 16];
    if (pwrite(file, block, sizeof block, 0) < 0) abort();
    begin();
    if (fsync(file)) abort();
    end();
}
static void *disk_waiter(void *unused) { for (;;) sync_it(); return unused; }

/* Three threads for one processor. */
static void *computes(void *unused) { for (;;) compute(1000000); return unused; }
static void *turn_waiter(void *unused) {
    long wall = now(CLOCK_MONOTONIC), own = now(CLOCK_THREAD_CPUTIME_ID);
    for (;;) {
        compute(1000000);
        atomic_store(&waited, now(CLOCK_MONOTONIC) - wall - (now(CLOCK_THREAD_CPUTIME_ID) - own));
    }
    return unused;
}

static void start(const char *name, void *(*run)(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL)) abort();
    pthread_setname_np(thread, name);
}

int main(int count, char **words) {
    const char *way = count > 1 ? words[1] : "";
    char line[16];
    if (!strcmp(way, "lock")) {
        start("holder", holder);
        start("waiter", lock_waiter);
    } else if (!strcmp(way, "pipe")) {
        if (pipe(ends)) abort();
        start("writer", writer);
        start("waiter", pipe_waiter);
    } else if (!strcmp(way, "disk")) {
        if ((file = open(words[2], O_RDWR | O_CREAT | O_TRUNC, 0600)) < 0) abort();
        start("waiter", disk_waiter);
    } else if (!strcmp(way, "turns")) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        if (sched_setaffinity(0, sizeof one, &one)) abort();
        start("computes", computes);
        start("computes", computes);
        start("waiter", turn_waiter);
    } else {
        return 2;
    }
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        long began = now(CLOCK_MONOTONIC), before = waited_until(began);
        if (!fgets(line, sizeof line, stdin)) break;
        long ended = now(CLOCK_MONOTONIC);
        printf("%.6f %.6f\n", (ended - began) / 1e9, (waited_until(ended) - before) / 1e9);
        fflush(stdout);
    }
    return 0;
}
