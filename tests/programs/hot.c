/* Calls a tiny function as fast as it can, and says how long that took.
 *
 *   hot THREADS
 *
 * For a number N on a line of its standard input every thread calls tiny() N times, and the nanoseconds are
 * printed in which the slowest did. It can also do to itself what a weaver does to others, by hand:
 *
 *   detour   puts a jump over tiny(), to code that counts in memory and does what tiny() did
 *   locked   the same, counting with a locked instruction as threads that share a counter must
 *   count    prints what was counted in this way */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* As compilers write it, but sure to be five bytes. */
__asm__(".text\n.p2align 6\n.globl tiny\n.type tiny, @function\n"
        "tiny: .cfi_startproc\n lea 1(%rdi), %rax\n ret\n.cfi_endproc\n.size tiny, .-tiny\n"
        ".p2align 6\ndetour: incq counter(%rip)\n lea 1(%rdi), %rax\n ret\n"
        ".p2align 6\nlocked: lock incq counter(%rip)\n lea 1(%rdi), %rax\n ret\n.p2align 6\n");
uint64_t tiny(uint64_t);
extern char detour[], locked[];
__attribute__((used)) uint64_t counter __attribute__((aligned(128)));

static pthread_barrier_t begin, end;
static uint64_t number;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void *call(void *took) {
    for (;;) {
        pthread_barrier_wait(&begin);
        int64_t start = now();
        uint64_t x = 0;
        for (uint64_t i = 0; i < number; i++) x = tiny(x);
        *(int64_t *)took = now() - start;
        if (x != number) abort();
        pthread_barrier_wait(&end);
    }
    return took;
}

static void patch(const char *target) {
    uintptr_t page = (uintptr_t)tiny & ~4095ul;
    int32_t distance = (int32_t)(target - ((char *)tiny + 5));
    mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    *(volatile unsigned char *)tiny = 0xe9;
    memcpy((char *)tiny + 1, &distance, 4);
    mprotect((void *)page, 8192, PROT_READ | PROT_EXEC);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    int64_t took[threads];
    pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&end, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, call, &took[i]);
    }
    puts("ready");
    fflush(stdout);
    char line[32];
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] == 'd') {
            patch(detour);
        } else if (line[0] == 'l') {
            patch(locked);
        } else if (line[0] == 'c') {
            printf("%lu\n", (unsigned long)counter);
            fflush(stdout);
        } else {
            number = strtoul(line, NULL, 10);
            pthread_barrier_wait(&begin);
            pthread_barrier_wait(&end);
            int64_t slowest = 0;
            for (int i = 0; i < threads; i++) slowest = took[i] > slowest ? took[i] : slowest;
            printf("%ld\n", (long)slowest);
            fflush(stdout);
        }
    }
    return 7;
}
