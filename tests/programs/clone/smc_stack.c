/* Code on the stack: what the compiler puts there for functions in functions, and what is put by hand. */
#define _GNU_SOURCE
#include "made.h"

APART static long apply(long (*one)(long), long x) { return one(x); }

/* Two of the same shape, called from the same place: their trampolines are at the same address. */
APART static long with_addition(long n, long x) {
    long add(long y) { return y + n; }
    return apply(add, x);
}
APART static long with_product(long n, long x) {
    long multiply(long y) { return y * n; }
    return apply(multiply, x);
}
SMC(trampolines, "12 35 12 35", "12 12 12 12") {
    long (*volatile both[])(long, long) = {with_addition, with_product};
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 10; j++) both[i % 2](7, 5);
        say("%ld", both[i % 2](7, 5));
    }
}
APART static long on_stack(uint32_t value) {
    _Alignas(64) uint8_t code[64];
    put_constant(code, value);
    return call(code);
}
SMC(by_hand, "0 1 2 3 4", "0 0 0 0 0") {
    for (uint32_t i = 0; i < 5; i++) say("%ld", on_stack(i));
}
/* At all depths, with frames over what was code before. */
APART static long deeper(uint32_t depth, uint32_t value) {
    _Alignas(64) volatile uint8_t code[64];
    put_constant((uint8_t *)code, value + depth);
    long sum = depth ? deeper(depth - 1, value) : 0;
    return sum + call((uint8_t *)code);
}
SMC(at_all_depths, "5050 15150 25250", "5050 5050 5050") {
    for (uint32_t value = 0; value < 300; value += 100) say("%ld", deeper(100, value));
}
