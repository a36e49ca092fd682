// A library that comes and goes, for tests/gdb to have breakpoints in it.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

volatile long scratch; // set
long total;            // watch

int twice(int number) { // call
    return number * 2;
}

static int use(const char *path, int round) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) abort();
    int (*function)(int) = (int (*)(int))dlsym(library, "loaded");
    int sum = 0;
    for (int i = 0; i < 4; i++) sum += function(round + i);
    dlclose(library);
    function = NULL; // nobody shall find on the stack where the library was
    return sum;
}

static void do_round(const char *path, int round) {
    total += use(path, round) + twice(round);
    scratch += round;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    int rounds = argc > 2 ? atoi(argv[2]) : 10;
    for (int round = 0; round < rounds; round++) {
        do_round(argv[1], round);
    }
    printf("%ld\n", total);
    return 0;
}
