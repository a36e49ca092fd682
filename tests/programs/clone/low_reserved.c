// Reserves all memory below four gigabytes, as Chromium does, and does what each line of its input says.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char *const low = (char *)0x10000;
static const size_t size = 0x100000000;

// Calls through a pointer are what the clone's tables are for.
static long twice(long n) { return 2 * n; }
static long thrice(long n) { return 3 * n; }
static long (*volatile const functions[])(long) = {twice, thrice};

static long work(void) {
    long sum = 0;
    for (long i = 0; i < 100000; i++) sum += functions[i % 2](i);
    return sum;
}

int main(int argc, char **argv) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (argc > 1 && !strcmp(argv[1], "noreserve")) flags |= MAP_NORESERVE;
    if (mmap(low, size, PROT_NONE, flags, -1, 0) != low) return 2;
    if (argc > 1 && !strcmp(argv[1], "hidden")) {
        // What is there can be made accessible again.
        mprotect(low, size, PROT_READ | PROT_WRITE);
        low[0x12345] = 42;
        mprotect(low, size, PROT_NONE);
    }
    char line[16];
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "fork")) {
            if (fork() == 0) _exit(work() % 97);
            int status;
            wait(&status);
            printf("%d\n", WEXITSTATUS(status));
        } else if (!strcmp(line, "unmap")) {
            printf("%d\n", munmap(low, size));
        } else if (!strcmp(line, "open")) {
            printf("%d\n", mprotect(low, size, PROT_READ));
        } else if (!strcmp(line, "advise")) {
            printf("%d\n", madvise(low, size, MADV_DONTNEED));
        } else if (!strcmp(line, "replace")) {
            int fixed = (flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED;
            void *at = mmap(low, size, PROT_NONE, fixed, -1, 0);
            printf("%d\n", at == low);
        } else {
            printf("%ld\n", work());
        }
        fflush(stdout);
    }
}
