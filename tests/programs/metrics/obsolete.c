/* Aligned memory from functions that are out of use. See truth.h. */
#define _GNU_SOURCE
#define VALUES(X) X(live)
#include <malloc.h>
#include "truth.h"

static void *got(void *memory) {
    check(memory != NULL, "no memory");
    ADD(live, (long)malloc_usable_size(memory));
    return memory;
}

static void work(long amount) {
    for (long i = 0; i < amount; i++) {
        void *all[] = {
            got(memalign(8, 100)), got(memalign(256, 1000)), got(valloc(100)), got(pvalloc(5000)),
        };
        for (long j = i % 2; j < 4; j++) {
            ADD(live, -(long)malloc_usable_size(all[j]));
            free(all[j]);
        }
    }
}

int main(int argc, char **argv) { return truth_main(argc, argv); }
