/* Allocations of aligned memory. See truth.h. */
#define VALUES(X) X(bytes) X(allocations)
#include "truth.h"

static void work(long amount) {
    for (long i = 0; i < amount; i++) {
        void *memory = aligned_alloc(64, 640);
        check(memory != NULL, "no memory");
        free(memory);
        check(!posix_memalign(&memory, 4096, 100), "no memory");
        free(memory);
        ADD(bytes, 740);
        ADD(allocations, 2);
    }
}

int main(int argc, char **argv) { return truth_main(argc, argv); }
