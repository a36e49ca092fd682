/* Threads that wait for three locks, one much more than the others, and measure that themselves.

   "wrapped" has a pthread_mutex_lock of its own, which takes a lock for its books first: a call within a call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { JOURNAL, POOL, HEAP, BOOKS, LOCKS };

static pthread_mutex_t journal_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char head[40];
    pthread_mutex_t lock;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t *locks[LOCKS] = {&journal_lock, &pool.lock, NULL, &books};

static atomic_long waited[LOCKS], calls[LOCKS];
static atomic_int is_over, is_counted;

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void note(int which, long began) {
    if (!is_counted) return;
    waited[which] += now() - began;
    calls[which]++;
}

#ifdef WRAPPED
static int (*real)(pthread_mutex_t *);

__attribute__((noipa)) static int take_real(pthread_mutex_t *lock) {
    for (int which = 0; which < LOCKS; which++) {
        if (locks[which] != lock) continue;
        long began = now();
        int result = real(lock);
        note(which, began);
        return result;
    }
    return real(lock);
}

__attribute__((noipa)) int pthread_mutex_lock(pthread_mutex_t *lock) {
    take_real(&books);
    pthread_mutex_unlock(&books);
    int result = take_real(lock);
    __asm__ volatile(""); /* no jump to it */
    return result;
}
#endif

static void take(int which) {
    long began = now();
    pthread_mutex_lock(locks[which]);
    note(which, began);
}

static void hold(int which, int microseconds) {
    take(which);
    usleep(microseconds);
    pthread_mutex_unlock(locks[which]);
    usleep(1000);
}

static void *holds_journal(void *unused) {
    while (!is_over) hold(JOURNAL, 5000);
    return unused;
}

static void *holds_others(void *unused) {
    while (!is_over) {
        hold(POOL, 1000);
        hold(HEAP, 1000);
#ifdef WRAPPED
        take_real(&books);
        usleep(2000);
        pthread_mutex_unlock(&books);
#endif
    }
    return unused;
}

static void want(int rounds) {
    for (int i = 0; i < rounds; i++)
        for (int which = 0; which < BOOKS; which++) {
            take(which);
            pthread_mutex_unlock(locks[which]);
            usleep(300);
        }
}

int main(void) {
    char line[80];
    pthread_t threads[2];
#ifdef WRAPPED
    real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
#endif
    locks[HEAP] = calloc(1, sizeof *locks[HEAP]);
    pthread_mutex_init(locks[HEAP], NULL);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    is_counted = 1;
    pthread_create(&threads[0], NULL, holds_journal, NULL);
    pthread_create(&threads[1], NULL, holds_others, NULL);
    want(atoi(line));
    is_over = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    is_counted = 0;
    const char *names[LOCKS] = {"journal", "pool", "heap", "books"};
    printf("{\"heap_at\": %lu", (unsigned long)locks[HEAP]);
    for (int i = 0; i < LOCKS; i++)
        printf(", \"%s_ns\": %ld, \"%s_calls\": %ld", names[i], waited[i], names[i], calls[i]);
    puts("}");
    fflush(stdout);
    return fgets(line, sizeof line, stdin) != NULL;
}
