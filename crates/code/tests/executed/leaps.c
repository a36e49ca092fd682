/* Long jumps, signals and computed gotos, for the tracer. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jmp_buf place;
static volatile sig_atomic_t caught;

static void handler(int number) { caught += number; }

static void faults(int number) {
    (void)number;
    siglongjmp(place, 2);
}

__attribute__((noinline)) static int leap(int depth) {
    if (depth == 0) longjmp(place, 1);
    return leap(depth - 1) + 1;
}

__attribute__((noinline)) static int interpret(const char *code) {
    static const void *const table[] = {&&stop, &&add, &&twice, &&less};
    int value = 1;
    goto *table[(int)*code++];
add:
    value += 3;
    goto *table[(int)*code++];
twice:
    value *= 2;
    goto *table[(int)*code++];
less:
    value -= 1;
    goto *table[(int)*code++];
stop:
    return value;
}

static int by_length(const void *one, const void *other) {
    return (int)strlen(*(char *const *)one) - (int)strlen(*(char *const *)other);
}

int main(int count, char **words) {
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, 0);
    action.sa_handler = faults;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, 0);
    volatile int total = 0;
    if (setjmp(place) == 0) total += leap(5);
    raise(SIGUSR1);
    if (sigsetjmp(place, 1) == 0) total += *(volatile int *)(long)(count - 1);
    total += interpret("\1\2\3\1\0");
    char *names[] = {"abc", "d", "efgh", words[0], "ij"};
    qsort(names, 5, sizeof *names, by_length);
    printf("%d %d %s %.3f\n", total, caught, names[0], atof("2.5"));
    return 0;
}
