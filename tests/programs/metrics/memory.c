/* Allocations of known size, and page faults. See truth.h. */
#define _GNU_SOURCE
#define VALUES(X) X(bytes) X(allocations) X(live) X(kept_bytes) X(kept_live) X(page_faults)
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
/* Faults are those of the process since it began. */
#define AFTER_BATCH() (truth_batch[page_faults_number] = faults())
static long faults(void);
#include "truth.h"

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

static void *got(void *memory, long bytes) {
    check(memory != NULL, "no memory");
    ADD(bytes, bytes);
    ADD(allocations, 1);
    ADD(live, (long)malloc_usable_size(memory));
    return memory;
}

static void *to_free(void *memory) {
    ADD(live, -(long)malloc_usable_size(memory));
    return memory;
}

#define TOO_MUCH (1L << 46)

/* Sizes that need a lock, a new piece of heap, a mapping, or none of that. */
static const long sizes[] = {1, 24, 1000, 5000, 40000, 300000};
#define SIZES ((long)(sizeof sizes / sizeof *sizes))

APART void allocates(long amount) {
    for (long i = 0; i < amount; i++) {
        long size = sizes[i % SIZES], other = sizes[i / SIZES % SIZES];
        void *memory = got(malloc(size), size);
        long old = malloc_usable_size(memory);
        memory = got(realloc(memory, other), other);
        ADD(live, -old);
        free(to_free(memory));
        memory = got(realloc(NULL, other), other);
        ADD(bytes, TOO_MUCH);
        ADD(allocations, 1);
        check(realloc(memory, TOO_MUCH) == NULL, "so much memory");
        free(to_free(memory));
        free(to_free(got(calloc(3, size), 3 * size)));
        free(NULL);
    }
}

/* Keeps what it gets, as a leak does. */
APART void keeps(long amount) {
    for (long i = 0; i < amount; i++) {
        void *memory = got(malloc(32), 32);
        __asm__ volatile("" : : "r"(memory) : "memory");
        ADD(kept_bytes, 32);
        ADD(kept_live, (long)malloc_usable_size(memory));
    }
}

APART void touches(long pages) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
    check(memory != MAP_FAILED, "a mapping");
    check(!madvise(memory, pages * 4096, MADV_NOHUGEPAGE), "advice");
    for (long i = 0; i < pages; i++) memory[i * 4096] = 1;
    check(!munmap(memory, pages * 4096), "unmapping");
}

static void work(long amount) {
    allocates(amount);
    keeps(amount);
    touches(amount);
}

int main(int argc, char **argv) { return truth_main(argc, argv); }
