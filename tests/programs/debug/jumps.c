// Jumps out of functions, and stacks that are changed, for tests/gdb to walk through.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

volatile long scratch; // set
long total;            // watch
static jmp_buf outer, inner;
static ucontext_t home, away;
static char stack[65536];

int twice(int number) { // call
    return number * 2;
}

static void descend(int levels, int code) {
    if (levels == 0) {
        if (code % 7 == 0) return;
        longjmp(code % 2 ? outer : inner, code);
    }
    descend(levels - 1, code);
    scratch++;
}

static int middle(int round) {
    switch (setjmp(inner)) {
    case 0:
        descend(round % 5, round + 2);
        return -1;
    default:
        return twice(round);
    }
}

static int caught(int round) {
    int code = setjmp(outer);
    if (code == 0) return middle(round);
    return code;
}

static void coroutine(void) {
    for (int i = 0;; i++) {
        total += i;
        swapcontext(&away, &home);
    }
}

static int many_returns(jmp_buf where, int times) {
    volatile int count = 0;
    if (setjmp(where) < times) longjmp(where, ++count);
    return count;
}

static void do_round(int round) {
    jmp_buf own;
    total += caught(round);
    swapcontext(&home, &away);
    total += many_returns(own, round % 4);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    getcontext(&away);
    away.uc_stack.ss_sp = stack;
    away.uc_stack.ss_size = sizeof stack;
    makecontext(&away, coroutine, 0);
    for (int round = 0; round < rounds; round++) {
        do_round(round);
    }
    printf("%ld\n", total);
    return 0;
}
