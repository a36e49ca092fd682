/* A library that comes and goes: its functions count where they are told. */
#include <stdint.h>

__attribute__((noipa)) uint64_t plugged_leaf(unsigned long *count, uint64_t x) {
    __asm__ volatile("incq %0" : "+m"(*count) : : "cc");
    return x * 5;
}

__attribute__((noipa)) uint64_t plugged(unsigned long *counts, uint64_t x) {
    __asm__ volatile("incq %0" : "+m"(counts[0]) : : "cc");
    return plugged_leaf(counts + 1, x) + 1;
}
