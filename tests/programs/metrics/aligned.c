/* Allocations of aligned memory. See truth.h. */
#define _GNU_SOURCE
#define VALUES(X) X(bytes) X(allocations) X(live)
#include <malloc.h>
#include "truth.h"

static void *got(void *memory) {
    check(memory != NULL, "no memory");
    ADD(live, (long)malloc_usable_size(memory));
    return memory;
}

static void freed(void *memory) {
    ADD(live, -(long)malloc_usable_size(memory));
    free(memory);
}

static void work(long amount) {
    for (long i = 0; i < amount; i++) {
        void *memory = got(aligned_alloc(64, 640));
        freed(memory);
        check(!posix_memalign(&memory, 4096, 100), "no memory");
        freed(got(memory));
        check(posix_memalign(&memory, 3, 100), "so odd an alignment");
        ADD(bytes, 840);
        ADD(allocations, 3);
        /* One is kept, so that the sizes matter. */
        got(memory = aligned_alloc(16, 5000));
        got(memory = aligned_alloc(512, 5000));
        ADD(bytes, 10000);
        ADD(allocations, 2);
    }
}

int main(int argc, char **argv) { return truth_main(argc, argv); }
