/* Known work: how often each function is called is at the end of its name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))

static volatile unsigned sink;

static APART unsigned leaf_of_700(unsigned n) {
    unsigned sum = n;
    for (unsigned i = 0; i < 10; i++)
        sum = sum * 31 + i;
    return sum;
}

/* Calls the leaf six times, and is called 100 times. */
static APART unsigned sixfold_100(unsigned n) {
    unsigned sum = 0;
    for (unsigned i = 0; i < 6; i++)
        sum += leaf_of_700(n + i);
    return sum;
}

/* Calls the leaf once, and is called 100 times. */
static APART unsigned onefold_100(unsigned n) { return leaf_of_700(n) + 1; }

/* Recursive: called once from main, and 50 times by itself. */
static APART unsigned recursive_51(unsigned n) {
    if (n == 0)
        return 1;
    sink = recursive_51(n - 1);
    return sink * 3 + n;
}

static APART unsigned odd_20(unsigned n);

/* Two that call each other. */
static APART unsigned even_21(unsigned n) { return n == 0 ? 7 : odd_20(n - 1) + 1; }
static APART unsigned odd_20(unsigned n) { return n == 0 ? 9 : even_21(n - 1) + 2; }

/* Called by a pointer only. */
static APART unsigned by_pointer_300(unsigned n) { return n ^ 0x55; }

/* Its last call becomes a jump. */
static APART unsigned jumps_40(unsigned n) { return onefold_100(n + 2); }

static APART __attribute__((cold)) unsigned rarely_1(unsigned n) { return n * 7 + sink; }

/* A compiler moves what it does rarely to another place, from where it comes back. */
static APART unsigned chilly_30(unsigned n) {
    unsigned sum = sink;
    if (n == 29)
        sum += rarely_1(n);
    for (unsigned i = 0; i < 3; i++)
        sum = sum * 5 + i;
    return sum;
}

int main(void) {
    unsigned (*volatile pointer)(unsigned) = by_pointer_300;
    for (unsigned i = 0; i < 100; i++)
        sink += sixfold_100(i);
    for (unsigned i = 0; i < 60; i++)
        sink += onefold_100(i);
    for (unsigned i = 0; i < 40; i++)
        sink += jumps_40(i);
    for (unsigned i = 0; i < 300; i++)
        sink += pointer(i);
    sink += recursive_51(50);
    sink += even_21(40);
    for (unsigned i = 0; i < 30; i++)
        sink += chilly_30(i);
    for (unsigned i = 0; i < 25; i++)
        free(malloc(i + 1));
    printf("%u\n", sink);
    return 3;
}
