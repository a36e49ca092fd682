// Control that goes unusual ways: longjmp, pointers to functions, variable arguments, gotos, exit.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static jmp_buf way_back;
static int depth;

static void descend(int n) {
    depth++;
    if (n == 0)
        longjmp(way_back, depth);
    descend(n - 1);
    depth = -1;
}

static int total(int n, ...) {
    va_list rest;
    va_start(rest, n);
    int sum = 0;
    while (n-- > 0)
        sum += va_arg(rest, int);
    va_end(rest);
    return sum;
}

static int twice(int x) { return 2 * x; }
static int square(int x) { return x * x; }
static int none(int x) {
    return x;
}

static int apply(int (*const *ways)(int), int n, int x) {
    for (int i = 0; i < n; i++)
        x = ways[i](x) - 1;
    return x;
}

static int search(int rows, int columns, int wanted) {
    int row, column;
    for (row = 0; row < rows; row++)
        for (column = 0; column < columns; column++)
            if (row * column == wanted)
                goto out;
    return -1;
out:
    return 100 * row + column;
}

static void last(void) {
    puts("at exit");
}

int main(void) {
    atexit(last);
    int got = setjmp(way_back);
    if (got == 0)
        descend(6);
    int (*const ways[])(int) = {twice, square, twice};
    int (*volatile unused)(int) = none;
    int x = apply(ways, 3, 3);
    x += total(3, 1, 2, 3) + total(0);
    x += search(10, 10, 42);
    x += search(3, 3, 42);
    if (x < 0)
        x = unused(x);
    printf("%d %d\n", got, x);
    exit(x == 652 ? 0 : 1);
}
