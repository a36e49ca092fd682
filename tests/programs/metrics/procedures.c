/* Procedures whose calls and times are known: leaf() sleeps, caller() runs and calls leaf(), and
 * recurses() calls itself. See truth.h. */
#define VALUES(X)                                                                                          \
    X(leaf_calls) X(caller_calls) X(recurses_calls) X(leaf_ns) X(caller_ns) X(caller_own_ns) X(recurses_ns) \
        X(recurses_calls_ns) X(caller_cpu_ns)
#include "truth.h"

#define SPIN 1000000L
#define NAP 2000000L
#define DEPTH 4

APART void leaf(void) {
    long began = now();
    nap(NAP);
    ADD(leaf_calls, 1);
    ADD(leaf_ns, now() - began);
}

APART void caller(void) {
    long cpu = cpu_now(), began = now();
    spin(SPIN);
    long called = now();
    leaf();
    long back = now();
    spin(SPIN);
    long end = now();
    ADD(caller_calls, 1);
    ADD(caller_ns, end - began);
    ADD(caller_own_ns, end - back + called - began);
    ADD(caller_cpu_ns, cpu_now() - cpu);
}

APART long recurses(int depth) {
    long began = now();
    nap(NAP / 4);
    ADD(recurses_calls, 1);
    long deeper = depth ? recurses(depth - 1) : 0;
    long took = now() - began;
    ADD(recurses_calls_ns, took);
    if (depth == DEPTH) ADD(recurses_ns, took);
    return deeper + 1;
}

APART void rounds(long amount) {
    for (long i = 0; i < amount; i++) {
        caller();
        check(recurses(DEPTH) == DEPTH + 1, "recursion");
    }
}

static void work(long amount) { rounds(amount); }

int main(int argc, char **argv) { return truth_main(argc, argv); }
