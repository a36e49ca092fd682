/* Changes hundreds of megabytes of memory around its own code, of which it has asked nobody what is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEBIBYTE (1UL << 20)

int main(int count, char **words) {
    if (count != 3) return 2;
    unsigned long here = (unsigned long)main & ~4095UL;
    int is_near = !strcmp(words[2], "near");
    unsigned long start = here - (is_near ? 900 : 1900) * MEBIBYTE;
    unsigned long end = here - (is_near ? 1 : 800) * MEBIBYTE;
    void *memory = (void *)start;
    int result = -2;
    if (!strcmp(words[1], "munmap")) result = munmap(memory, end - start);
    if (!strcmp(words[1], "mprotect")) result = mprotect(memory, end - start, PROT_NONE);
    if (!strcmp(words[1], "madvise")) result = madvise(memory, end - start, MADV_DONTNEED);
    if (!strcmp(words[1], "mmap")) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        result = mmap(memory, end - start, PROT_READ, flags, -1, 0) == memory ? 0 : -1;
    }
    printf("%d\n", result);
    free(malloc(2 * MEBIBYTE));
    printf("%ld\n", strtol("12", NULL, 10));
    return 5;
}
