// Coroutines that call a function and are suspended in it, in an order that a line of the input gives: a digit
// resumes the coroutine of that number, whose stack is the higher the higher the number is; `m` calls the function
// from the main stack. In the end all calls return. Prints for how long, in nanoseconds, at least one call was running.
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>
#include <ucontext.h>

enum { COROUTINES = 3, STACK = 64 << 10, PAUSE = 50000 };

static ucontext_t outside, inside[COROUTINES];
static char stacks[COROUTINES][STACK];
static int current, running, is_inside[COROUTINES];
static long since, total;
static volatile long sink;

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static __attribute__((noinline)) void spend(long time) {
    for (long end = now() + time; now() < end;) sink++;
}

static __attribute__((noinline)) void yield(void) { swapcontext(&inside[current], &outside); }

__attribute__((noinline)) void work(int yields) {
    if (!running++) since = now();
    spend(PAUSE);
    if (yields) yield();
    spend(PAUSE);
    if (!--running) total += now() - since;
    sink++;
}

static void body(void) {
    for (;;) {
        is_inside[current] = 1;
        work(1);
        is_inside[current] = 0;
        yield();
    }
}

static void resume(int number) {
    current = number;
    swapcontext(&outside, &inside[number]);
}

int main(void) {
    for (int i = 0; i < COROUTINES; i++) {
        getcontext(&inside[i]);
        inside[i].uc_stack.ss_sp = stacks[i];
        inside[i].uc_stack.ss_size = STACK;
        inside[i].uc_link = &outside;
        makecontext(&inside[i], body, 0);
    }
    char line[64];
    puts("ready");
    for (fflush(stdout); fgets(line, sizeof line, stdin); fflush(stdout)) {
        total = 0;
        for (const char *step = line; *step != '\n'; step++) {
            if (*step == 'm')
                work(0);
            else
                resume(*step - '0');
            spend(PAUSE);
        }
        for (int i = 0; i < COROUTINES; i++)
            if (is_inside[i]) resume(i);
        printf("%ld\n", total);
    }
    return 0;
}
