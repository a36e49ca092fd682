/* Functions of every shape that compilers make and weavers trip over; see lockstep.h. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#define FUNCTIONS(X)                                                                                       \
    X(tiny) X(normal) X(recursive) X(even) X(odd) X(tail_call) X(tail_target) X(switching)                 \
    X(loop_at_entry) X(variadic) X(hot_cold) X(rare) X(floats) X(big_result) X(many_arguments)             \
    X(red_zone) X(through_pointer) X(leaper) X(leaps_over) X(one_byte) X(two_bytes) X(three_bytes)         \
    X(four_bytes) X(five_bytes) X(short_loop) X(jumped_into)
#include "lockstep.h"

/* Functions of a few bytes, one right behind the other: what replaces one must not reach into the next.
 * They count where their first argument points, but for the first, which has no room to. */
__asm__(".text\n"
        ".globl one_byte, two_bytes, three_bytes, four_bytes, five_bytes, loop_at_entry, short_loop, jumped_into\n"
        ".type one_byte, @function\none_byte: ret\n.size one_byte, .-one_byte\n"
        /* Jumps to its neighbour, which counts both: two places, one after the other. */
        ".type two_bytes, @function\ntwo_bytes: jmp three_bytes\n.size two_bytes, .-two_bytes\n"
        ".type three_bytes, @function\nthree_bytes: incl (%rdi); ret\n.size three_bytes, .-three_bytes\n"
        ".type four_bytes, @function\nfour_bytes: incq (%rdi); ret\n.size four_bytes, .-four_bytes\n"
        ".type five_bytes, @function\nfive_bytes: incq 8(%rdi); ret\n.size five_bytes, .-five_bytes\n"
        /* A leaf whose loop begins with its first instruction: it is entered once, not once per turn. */
        ".type loop_at_entry, @function\nloop_at_entry: dec %esi; jnz loop_at_entry; incq (%rdi); ret\n"
        ".size loop_at_entry, .-loop_at_entry\n"
        /* A loop whose head is the second instruction, within the first five bytes. */
        ".type short_loop, @function\nshort_loop: xor %eax, %eax\n1: inc %eax; dec %esi; jnz 1b; incq (%rdi); ret\n"
        ".size short_loop, .-short_loop\n"
        /* Another way in, two bytes after the first one: entered there it is not entered at its beginning. */
        ".type jumped_into, @function\njumped_into: xor %eax, %eax\n"
        ".globl second_way_in\nsecond_way_in: inc %eax; incq (%rdi); ret\n.size jumped_into, .-jumped_into\n");
void one_byte(void), two_bytes(void *), three_bytes(void *), four_bytes(void *), five_bytes(void *);
void loop_at_entry(void *, int);
int short_loop(void *, int), jumped_into(void *), second_way_in(void *);

#define PLACE(name) ((void *)&counts[name##_number])

APART uint64_t tiny(uint64_t x) {
    COUNT(tiny);
    return x + 1;
}

APART uint64_t normal(const uint64_t *values, int size) {
    COUNT(normal);
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < size; i++) hash = (hash ^ values[i]) * 1099511628211u;
    return hash;
}

APART uint64_t recursive(unsigned depth) {
    COUNT(recursive);
    uint64_t below = depth ? recursive(depth - 1) : 0;
    /* So that it is no loop in the end. */
    __asm__ volatile("" : "+r"(below));
    return below + depth;
}

/* Two that end in jumps to each other, and so never grow the stack. */
APART int odd(unsigned n);
APART int even(unsigned n) {
    COUNT(even);
    return n ? odd(n - 1) : 1;
}
APART int odd(unsigned n) {
    COUNT(odd);
    return n ? even(n - 1) : 0;
}

APART uint64_t tail_target(uint64_t x) {
    COUNT(tail_target);
    return x * 3;
}
APART uint64_t tail_call(uint64_t x) {
    COUNT(tail_call);
    return tail_target(x + 5);
}

APART const char *switching(unsigned x) {
    COUNT(switching);
    static int touched;
    switch (x % 9) {
    case 0: return "zero";
    case 1: __atomic_add_fetch(&touched, 1, __ATOMIC_RELAXED); return "one";
    case 2: return "two";
    case 3: __atomic_add_fetch(&touched, 3, __ATOMIC_RELAXED); return "three";
    case 4: return "four";
    case 5: __atomic_sub_fetch(&touched, 2, __ATOMIC_RELAXED); return "five";
    case 6: return tiny(x) > x ? "six" : "?";
    case 7: return "seven";
    default: return "eight";
    }
}

APART double variadic(int number, ...) {
    COUNT(variadic);
    va_list list;
    va_start(list, number);
    double sum = 0;
    for (int i = 0; i < number; i++) sum += i % 2 ? va_arg(list, double) : va_arg(list, int);
    va_end(list);
    return sum;
}

__attribute__((cold, noipa)) uint64_t rare(uint64_t x) {
    COUNT(rare);
    return x ^ 0x5555;
}
/* The compiler moves the unlikely part to hot_cold.cold, which is entered by a jump. */
APART uint64_t hot_cold(uint64_t x) {
    COUNT(hot_cold);
    if (__builtin_expect(x % 64 == 63, 0)) {
        x = rare(x) + rare(x + 1);
        return x * 7;
    }
    return x + 9;
}

APART double floats(double a, float b, double c) {
    COUNT(floats);
    return a * b + c;
}

struct big {
    uint64_t part[6];
};
APART struct big big_result(uint64_t x) {
    COUNT(big_result);
    struct big result;
    for (int i = 0; i < 6; i++) result.part[i] = x + (unsigned)i;
    return result;
}

APART uint64_t many_arguments(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g,
                              uint64_t h, uint64_t i) {
    COUNT(many_arguments);
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i;
}

/* A leaf that keeps its variables below the stack pointer. */
APART uint64_t red_zone(unsigned x) {
    COUNT(red_zone);
    volatile uint64_t below[12];
    for (unsigned i = 0; i < 12; i++) below[i] = i * x;
    uint64_t sum = 0;
    for (unsigned i = 0; i < 12; i++) sum += below[i];
    return sum;
}

APART uint64_t through_pointer(uint64_t x) {
    COUNT(through_pointer);
    return x << 1;
}
uint64_t (*volatile pointer)(uint64_t) = through_pointer;

/* Frames that are left by a jump, and never return. */
APART void leaper(jmp_buf *back, int value) {
    COUNT(leaper);
    longjmp(*back, value);
}
APART int leaps_over(jmp_buf *back, int value) {
    COUNT(leaps_over);
    leaper(back, value);
    __asm__ volatile("");
    return value;
}
APART static int leap(int value) {
    jmp_buf back;
    int got = setjmp(back);
    if (got == 0) return leaps_over(&back, value);
    return got;
}

static void one_round(unsigned long number) {
    uint64_t values[4] = {number, number + 1, 2, 3}, n = number % 1000;
    check(tiny(n) == n + 1, "tiny");
    check(normal(values, 4) == normal(values, 4), "normal");
    check(recursive(n % 7) == (n % 7) * (n % 7 + 1) / 2, "recursive");
    check(even(n % 6) == (n % 2 == 0), "even");
    check(tail_call(n) == (n + 5) * 3, "tail_call");
    check(tail_target(n) == n * 3, "tail_target");
    check(strchr("ztofse", switching(n)[0]) != NULL, "switching");
    check(variadic(4, 1, 2.5, 3, 4.5) == 11, "variadic");
    check(hot_cold(n) == (n % 64 == 63 ? ((n ^ 0x5555) + ((n + 1) ^ 0x5555)) * 7 : n + 9), "hot_cold");
    check(floats(2, 3, 4) == 10, "floats");
    check(big_result(n).part[5] == n + 5, "big_result");
    check(many_arguments(1, 1, 1, 1, 1, 1, 1, 1, n) == 36 + 9 * n, "many_arguments");
    check(red_zone((unsigned)n) == 66 * n, "red_zone");
    check(pointer(n) == 2 * n, "through_pointer");
    check(leap(1 + (int)n) == 1 + (int)n, "leap");
    one_byte();
    COUNT(one_byte);
    /* The neighbour counts at the place that it is given, so two_bytes is counted when it jumps there. */
    two_bytes(PLACE(two_bytes));
    COUNT(three_bytes);
    three_bytes(PLACE(three_bytes));
    four_bytes(PLACE(four_bytes));
    five_bytes((char *)PLACE(five_bytes) - 8);
    loop_at_entry(PLACE(loop_at_entry), 1 + (int)(n % 5));
    check(short_loop(PLACE(short_loop), 3) == 3, "short_loop");
    check(jumped_into(PLACE(jumped_into)) == 1, "jumped_into");
    unsigned long elsewhere = 0;
    int seven;
    /* The register that the skipped instruction would have cleared. */
    __asm__ volatile("call second_way_in" : "=a"(seven) : "0"(6), "D"(&elsewhere) : "memory", "cc");
    check(seven == 7 && elsewhere == 1, "second_way_in");
}

int main(int argc, char **argv) { return lockstep_main(argc, argv); }
