/* A program that counts itself, and does so in batches, so that others can count beside it.
 *
 *   PROGRAM THREADS           works on command
 *   PROGRAM THREADS ROUNDS    does so many rounds in every thread, prints its counts and ends
 *
 * It prints "ready" and then obeys the lines of its standard input:
 *
 *   batch N   every worker does N rounds; then all rest, and the counts of just this batch are printed
 *   go        the workers begin to work; "going" is printed
 *   rest      the workers rest again; what they counted since they began is printed
 *   NAME ...  what else the program knows (see COMMANDS)
 *
 * At the end of its input it prints what was counted in all, and ends with the exit code 7. Counts are
 * printed as one line of JSON. While the workers rest no function that is counted runs.
 *
 * The program defines FUNCTIONS(X) as X(name) for every counted function before it includes this file,
 * and one_round() after; every counted function says COUNT(name) once for every time that it is called. */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOCKSTEP_NUMBER(name) name##_number,
#define LOCKSTEP_NAME(name) #name,
enum { FUNCTIONS(LOCKSTEP_NUMBER) COUNTED };
static const char *const counted_names[] = {FUNCTIONS(LOCKSTEP_NAME)};

/* One instruction: neither the compiler nor a signal can come between. */
static __thread unsigned long counts[COUNTED];
#define COUNT(name) __asm__ volatile("incq %0" : "+m"(counts[name##_number]) : : "cc")

#define APART __attribute__((noipa))

/* What a worker does before and after it works, and what the program knows besides the protocol. */
#ifndef BEFORE_WORK
#define BEFORE_WORK() (void)0
#endif
#ifndef AFTER_WORK
#define AFTER_WORK() (void)0
#endif
#ifndef COMMANDS
#define COMMANDS(line) 0
#endif
#ifndef PRINT_MORE
#define PRINT_MORE() (void)0
#endif

static void one_round(unsigned long number);

static pthread_mutex_t lockstep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t lockstep_changed = PTHREAD_COND_INITIALIZER;
static unsigned long lockstep_batch, lockstep_added, lockstep_rounds, lockstep_working;
static int lockstep_stop;
static unsigned long lockstep_counts[COUNTED], lockstep_total[COUNTED];

__attribute__((noreturn, cold)) static void broken(const char *what) {
    printf("broken: %s\n", what);
    fflush(stdout);
    _exit(1);
}

#define check(holds, what) ((holds) ? (void)0 : broken(what))

/* Give what this thread has counted to all. */
static void hand_over(void) {
    pthread_mutex_lock(&lockstep_lock);
    for (int i = 0; i < COUNTED; i++) lockstep_counts[i] += counts[i], counts[i] = 0;
    pthread_mutex_unlock(&lockstep_lock);
}

static void *lockstep_work(void *unused) {
    for (unsigned long done = 0;; done++) {
        pthread_mutex_lock(&lockstep_lock);
        while (lockstep_batch == done) pthread_cond_wait(&lockstep_changed, &lockstep_lock);
        unsigned long rounds = lockstep_rounds;
        pthread_mutex_unlock(&lockstep_lock);
        BEFORE_WORK();
        for (unsigned long i = 0; rounds ? i < rounds : !__atomic_load_n(&lockstep_stop, __ATOMIC_ACQUIRE); i++)
            one_round(i);
        AFTER_WORK();
        hand_over();
        pthread_mutex_lock(&lockstep_lock);
        lockstep_working--;
        pthread_cond_broadcast(&lockstep_changed);
        pthread_mutex_unlock(&lockstep_lock);
    }
    return unused;
}

/* Let all workers do so many rounds, or if that is none, work until they are to stop. */
static void lockstep_begin(unsigned long threads, unsigned long rounds) {
    pthread_mutex_lock(&lockstep_lock);
    memset(lockstep_counts, 0, sizeof lockstep_counts);
    lockstep_rounds = rounds, lockstep_working = threads, lockstep_stop = 0, lockstep_batch++;
    pthread_cond_broadcast(&lockstep_changed);
    pthread_mutex_unlock(&lockstep_lock);
}

static void lockstep_print(const unsigned long *values) {
    for (int i = 0; i < COUNTED; i++) printf("%s\"%s\": %lu", i ? ", " : "{", counted_names[i], values[i]);
    PRINT_MORE();
    puts("}");
    fflush(stdout);
}

static void lockstep_end(void) {
    pthread_mutex_lock(&lockstep_lock);
    while (lockstep_working) pthread_cond_wait(&lockstep_changed, &lockstep_lock);
    if (lockstep_added < lockstep_batch)
        for (int i = 0; i < COUNTED; i++) lockstep_total[i] += lockstep_counts[i];
    lockstep_added = lockstep_batch;
    pthread_mutex_unlock(&lockstep_lock);
}

static int lockstep_main(int argc, char **argv) {
    unsigned long threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    for (unsigned long i = 0; i < threads; i++) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, lockstep_work, NULL) == 0, "no thread");
    }
    if (argc > 2) {
        lockstep_begin(threads, strtoul(argv[2], NULL, 10));
        lockstep_end();
        lockstep_print(lockstep_total);
        return 7;
    }
    puts("ready");
    fflush(stdout);
    char line[64];
    int going = 0;
    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "batch ", 6) == 0) {
            lockstep_begin(threads, strtoul(line + 6, NULL, 10));
            lockstep_end();
            lockstep_print(lockstep_counts);
        } else if (strcmp(line, "go\n") == 0) {
            lockstep_begin(threads, 0);
            going = 1;
            puts("going");
            fflush(stdout);
        } else if (strcmp(line, "rest\n") == 0) {
            __atomic_store_n(&lockstep_stop, 1, __ATOMIC_RELEASE);
            lockstep_end();
            going = 0;
            lockstep_print(lockstep_counts);
        } else if (!COMMANDS(line)) {
            broken("what is to be done?");
        }
    }
    if (going) __atomic_store_n(&lockstep_stop, 1, __ATOMIC_RELEASE);
    lockstep_end();
    lockstep_print(lockstep_total);
    return 7;
}
#endif
