/* Calls thirty small functions, some more often than others, or does as much without calling any.
 *
 *   mills
 *
 * For a line "grind" of its standard input it calls them all the time, for "rest" it calls none; it
 * keeps its processor busy in both cases. It begins with calling, and ends with its input. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static volatile long flour;
static atomic_int rests;

/* The mill of number N is called in one of 2^(N / 2) rounds. */
#define MILL(n) __attribute__((noinline)) void mill_##n(long grain) { flour += grain ^ n; }
#define TURN(n) if ((round & ((1L << (n / 2)) - 1)) == 0) mill_##n(round);
#define TEN(of, t) of(t##0) of(t##1) of(t##2) of(t##3) of(t##4) of(t##5) of(t##6) of(t##7) of(t##8) of(t##9)

TEN(MILL, 1)
TEN(MILL, 2)
TEN(MILL, 3)

static void *listen(void *unused) {
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        atomic_store(&rests, strncmp(line, "rest", 4) == 0);
        puts("done");
        fflush(stdout);
    }
    atomic_store(&rests, 2);
    return unused;
}

int main(void) {
    pthread_t listener;
    pthread_create(&listener, NULL, listen, NULL);
    puts("ready");
    fflush(stdout);
    for (long round = 0;; round++) {
        int now = atomic_load(&rests);
        if (now == 2) return 7;
        if (now == 1) {
            flour += round;
            continue;
        }
        TEN(TURN, 1)
        TEN(TURN, 2)
        TEN(TURN, 3)
    }
}
