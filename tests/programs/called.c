/* A function that a snippet may call from another one.
 *
 * For each line of its standard input it prints the last sum, and calls wide() for the next, with what is in a
 * vector register. Then it waits, with much of its stack as that call has left it. */
#include <immintrin.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline, target("avx"))) double wide(__m256d values) {
    double all[4];
    _mm256_storeu_pd(all, values);
    return all[0] + all[1] + all[2] + all[3];
}

/* Uses what wide() has its argument in. */
__attribute__((noinline, used, target("avx"))) long clears(void) {
    __asm__ volatile("vzeroall" ::: "xmm0", "xmm1", "xmm2");
    return 7;
}

__attribute__((noinline)) long waits(char *line) {
    char old[1 << 15];
    __asm__ volatile("" : : "r"(old) : "memory");
    return read(0, line, 64);
}

__attribute__((target("avx"))) int main(void) {
    char line[64];
    double sum = 4321;
    while (waits(line) > 0) {
        printf("%g\n", sum);
        fflush(stdout);
        sum = wide(_mm256_set_pd(1, 20, 300, 4000));
    }
    return 0;
}
