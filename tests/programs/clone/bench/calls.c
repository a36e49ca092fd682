/* Calls a tiny function as often as it is told, in millions; prints a sum. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static volatile uint64_t seen;

__attribute__((noinline)) static uint64_t tiny(uint64_t x) {
    __asm__ volatile("" ::: "memory");
    return x * 2654435761u + 1;
}

int main(int argc, char **argv) {
    uint64_t calls = (argc > 1 ? strtoull(argv[1], NULL, 10) : 100) * 1000000, sum = 0;
    for (uint64_t i = 0; i < calls; i++) sum += tiny(i) >> 7;
    seen = sum;
    printf("%llu\n", (unsigned long long)seen);
    return 0;
}
