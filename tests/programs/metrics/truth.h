/* A program that knows the true value of what is measured in it. It speaks as lockstep.h does:
 *
 *   PROGRAM THREADS    prints "ready" and then obeys the lines of its standard input:
 *
 *   batch N            every worker works once, N being how much; then all rest, and the true values
 *                      of just this batch are printed as one line of JSON
 *
 * At the end of its input it prints the values of all batches and ends with the exit code 7.
 *
 * Between its work it does nothing that is measured but what FRAME_SYSCALLS and FRAME_BYTES say: it
 * neither locks nor allocates, and its threads wait for each other by reading from pipes.
 *
 * The program defines VALUES(X) as X(name) for every value before it includes this file, and work()
 * after, which says ADD(name, amount). Times are in nanoseconds. */
#ifndef TRUTH_H
#define TRUTH_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TRUTH_NUMBER(name) name##_number,
#define TRUTH_NAME(name) #name,
enum { VALUES(TRUTH_NUMBER) TRUTHS };
static const char *const truth_names[] = {VALUES(TRUTH_NAME)};
static __thread long truth_mine[TRUTHS];
static long truth_batch[TRUTHS], truth_total[TRUTHS];

#define ADD(name, amount) (truth_mine[name##_number] += (amount))

#ifdef __cplusplus
#define APART extern "C" __attribute__((noipa))
#else
#define APART __attribute__((noipa))
#endif

static void work(long amount);

/* A line that is printed has always this length, so that a program can know how much it has written. */
#define LINE 512
static int truth_count, truth_begin[64][2], truth_done[2];

__attribute__((noreturn, cold)) static void broken(const char *what) {
    printf("broken: %s\n", what);
    fflush(stdout);
    _exit(1);
}
#define check(holds, what) ((holds) ? (void)0 : broken(what))

static inline long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static inline long cpu_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static inline void nap(long ns) {
    struct timespec time = {0, ns};
    while (nanosleep(&time, &time)) continue;
}

/* Keep the processor busy without calling anything. */
static inline __attribute__((always_inline)) void spin(long rounds) {
    for (long i = 0; i < rounds; i++) __asm__ volatile("" : "+r"(i));
}

static char truth_line[LINE];
static long truth_line_length;

static void *truth_work(void *begin) {
    long amount;
    while (read(((int *)begin)[0], &amount, sizeof amount) == sizeof amount) {
        work(amount);
        for (int i = 0; i < TRUTHS; i++) {
            __atomic_fetch_add(&truth_batch[i], truth_mine[i], __ATOMIC_SEQ_CST);
            truth_mine[i] = 0;
        }
        check(write(truth_done[1], "", 1) == 1, "a worker cannot say that it is done");
    }
    return begin;
}

/* For each batch the frame makes 4 system calls for each worker, of which each moves a byte or a long
 * from one thread to another, and reads and writes a line. */
#define FRAME_SYSCALLS (4L * truth_count + 2)
#define FRAME_BYTES (2L * truth_count * (1 + (long)sizeof(long)) + truth_line_length + LINE)

static void truth_print(const long *values) {
    char text[LINE + 1];
    int length = 0;
    for (int i = 0; i < TRUTHS; i++)
        length += snprintf(text + length, LINE - length, "%s\"%s\": %ld", i ? ", " : "{", truth_names[i],
                           values[i]);
    check(length < LINE - 2, "the line is too long");
    length += snprintf(text + length, LINE - length, "}");
    memset(text + length, ' ', LINE - length);
    text[LINE - 1] = '\n';
    check(write(1, text, LINE) == LINE, "nothing can be printed");
}

/* What a program knows when all workers are done. */
#ifndef AFTER_BATCH
#define AFTER_BATCH() (void)0
#endif

static int truth_main(int argc, char **argv) {
    truth_count = argc > 1 ? atoi(argv[1]) : 1;
    check(truth_count > 0 && truth_count <= 64, "how many threads?");
    check(!pipe(truth_done), "no pipe");
    for (int i = 0; i < truth_count; i++) {
        char name[32];
        pthread_t thread;
        check(!pipe(truth_begin[i]), "no pipe");
        check(!pthread_create(&thread, NULL, truth_work, truth_begin[i]), "no thread");
        snprintf(name, sizeof name, "worker-%d", i);
        check(!pthread_setname_np(thread, name), "no name");
    }
    check(write(1, "ready\n", 6) == 6, "nothing can be printed");
    while ((truth_line_length = read(0, truth_line, sizeof truth_line - 1)) > 0) {
        truth_line[truth_line_length] = 0;
        check(!strncmp(truth_line, "batch ", 6), "what is to be done?");
        long amount = strtol(truth_line + 6, NULL, 10);
        memset(truth_batch, 0, sizeof truth_batch);
        for (int i = 0; i < truth_count; i++)
            check(write(truth_begin[i][1], &amount, sizeof amount) == sizeof amount, "nobody begins");
        for (int i = 0; i < truth_count; i++) {
            char done;
            check(read(truth_done[0], &done, 1) == 1, "nobody is done");
        }
        AFTER_BATCH();
        for (int i = 0; i < TRUTHS; i++) truth_total[i] += truth_batch[i];
        truth_print(truth_batch);
    }
    truth_print(truth_total);
    return 7;
}
#endif
