/* What every program does, for every way to link one: start, compute, call, print, end. */
#include "check.h"
#include <setjmp.h>
#include <time.h>

static int constructed;
__attribute__((constructor)) static void construct(void) { constructed = 41; }
static void at_exit(void) { puts("at exit"); }
__attribute__((destructor)) static void destruct(void) { puts("destructor"); }

static __thread int local = 17;

APART static int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
APART static int ackermann(int m, int n) {
    return !m ? n + 1 : !n ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
/* Far deeper than any stack of return addresses in hardware or in a translator. */
APART static uint64_t deep(int n) { return n ? deep(n - 1) * 31 + (uint64_t)n : 7; }

CASE(start) {
    extern char **environ;
    CHECK(constructed == 41);
    CHECK(local == 17);
    CHECK(environ != NULL);
    atexit(at_exit);
    puts("started");
}

CASE(recursion) {
    printf("%d %d\n", fibonacci(24), ackermann(2, 300));
    for (int i = 0; i < 5; i++) printf("%lx\n", (unsigned long)deep(50000));
}

APART static int chosen(int which, int x) {
    switch (which) {
    case 0: return x + 1;
    case 1: return x * 3;
    case 2: return x ^ 0x55;
    case 3: return x - 9;
    case 4: return x << 1;
    case 5: return x >> 1;
    case 6: return ~x;
    case 7: return x * x;
    case 8: return x | 64;
    case 9: return x & 0xffff;
    case 10: return -x;
    case 11: return x % 1000;
    default: return which;
    }
}
CASE(jump_table) {
    int x = 1;
    for (int i = 0; i < 100000; i++) x = chosen(i * 7 % 13, x & 0xfffff);
    printf("%d\n", x);
}

APART static int add(int x) { return x + 3; }
APART static int multiply(int x) { return (int)((unsigned)x * 5u); }
APART static int mix(int x) { return x ^ 0x1234; }
CASE(indirect_calls) {
    int (*volatile table[])(int) = {add, multiply, mix};
    int x = 1;
    for (int i = 0; i < 100000; i++) x = table[i % 3](x);
    static const void *const labels[] = {&&one, &&two, &&three, &&out};
    int count = 0, step = 0;
    goto *labels[0];
one:
    x += 11;
    goto *labels[++step % 3];
two:
    x ^= 77;
    goto *labels[++step % 3];
three:
    x -= 5;
    if (++count < 10000) goto *labels[++step % 3];
    goto *labels[3];
out:
    printf("%d\n", x);
}

static jmp_buf place;
APART static void leap(int depth, int value) {
    volatile char room[100];
    memset((char *)room, depth, sizeof room);
    if (depth == 0) longjmp(place, value);
    if (value) leap(depth - 1, value);
    CHECK(room[5] == (char)depth);
}
CASE(longjmp) {
    volatile int sum = 0;
    for (volatile int i = 1; i <= 2000; i++) {
        int value = setjmp(place);
        if (value) {
            sum += value;
            continue;
        }
        leap(i % 40, i);
    }
    printf("%d\n", sum);
}

static int compare(const void *left, const void *right) {
    return (*(const int *)left > *(const int *)right) - (*(const int *)left < *(const int *)right);
}
CASE(library) {
    enum { N = 20000 };
    int *numbers = malloc(N * sizeof *numbers);
    unsigned seed = 12345;
    for (int i = 0; i < N; i++) numbers[i] = (int)((seed = seed * 1103515245u + 12345u) >> 8);
    qsort(numbers, N, sizeof *numbers, compare);
    for (int i = 1; i < N; i++) CHECK(numbers[i - 1] <= numbers[i]);
    char text[200];
    snprintf(text, sizeof text, "%d %s %.6f %g %c", numbers[N / 2], "word", 3.14159265, 1e100, 'x');
    puts(text);
    double sum = 0;
    for (int i = 1; i < 100000; i++) sum += 1.0 / i / (double)i;
    printf("%.12f %s\n", sum, strstr("a needle in a haystack", "hay"));
    free(numbers);
}

CASE(clocks) {
    struct timespec before, between, after;
    for (int i = 0; i < 1000; i++) {
        clock_gettime(CLOCK_MONOTONIC, &before);
        clock_gettime(CLOCK_MONOTONIC, &between);
        clock_gettime(CLOCK_MONOTONIC, &after);
        CHECK(before.tv_sec * 1000000000l + before.tv_nsec <= between.tv_sec * 1000000000l + between.tv_nsec);
        CHECK(between.tv_sec * 1000000000l + between.tv_nsec <= after.tv_sec * 1000000000l + after.tv_nsec);
    }
    time_t now = time(NULL);
    clock_gettime(CLOCK_REALTIME, &after);
    CHECK(after.tv_sec - now < 100 && after.tv_sec >= now - 1);
}

CASE(exit_code) {
    puts("to the last");
    exit(77);
}
CASE(abort) {
    puts("aborted");
    abort();
}
