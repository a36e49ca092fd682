/* Calls very many functions; benchmarks/scale.py writes them. See lockstep.h; besides,
 *
 *   gap      prints the longest time in nanoseconds for which a thread that always looks at the clock was
 *            kept from running, since this was asked last */
#define _GNU_SOURCE
#include <stdint.h>
#include <time.h>

#define FUNCTIONS(X) X(call_all)
static int obeyed(const char *line);
#define COMMANDS(line) obeyed(line)
#include "lockstep.h"

extern uint64_t (*const many_functions[])(uint64_t);
extern const uint64_t many_number;

static int64_t longest;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void *look(void *unused) {
    for (int64_t last = now();;) {
        int64_t time = now();
        if (time - last > __atomic_load_n(&longest, __ATOMIC_RELAXED))
            __atomic_store_n(&longest, time - last, __ATOMIC_RELAXED);
        last = time;
    }
    return unused;
}

static int obeyed(const char *line) {
    if (strcmp(line, "gap\n") != 0) return 0;
    printf("%ld\n", (long)__atomic_exchange_n(&longest, 0, __ATOMIC_RELAXED));
    fflush(stdout);
    return 1;
}

APART uint64_t call_all(void) {
    COUNT(call_all);
    uint64_t x = 0;
    for (uint64_t i = 0; i < many_number; i++) x = many_functions[i](x);
    return x;
}

static void one_round(unsigned long number) {
    (void)number;
    /* Each adds one. */
    check(call_all() == many_number, "the sum is wrong");
}

int main(int argc, char **argv) {
    pthread_t thread;
    check(pthread_create(&thread, NULL, look, NULL) == 0, "no thread");
    return lockstep_main(argc, argv);
}
