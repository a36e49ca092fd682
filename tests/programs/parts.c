/* Two files with a function of the same name, each with a part that is rarely run and placed elsewhere.
 * Which of the two files, or the rest of the program, this is depends on PART. */
#include <stdio.h>

#define APART __attribute__((noipa))

unsigned first(unsigned x);
unsigned second(unsigned x);
__attribute__((cold)) unsigned rare(unsigned x);
extern unsigned (*through)(unsigned);

#if PART == 1 || PART == 2
static APART unsigned same(unsigned x) {
    unsigned sum = x * PART;
    if (x % 10 == 9) sum += rare(x) * rare(x + PART);
    return sum ^ 5;
}

static APART unsigned pointed(unsigned x) {
    if (x % 10 == 7) x += rare(x) / PART;
    return x + 7;
}

#if PART == 1
unsigned first(unsigned x) { return same(x) * 3; }
unsigned (*through)(unsigned) = pointed;
#else
unsigned second(unsigned x) {
    through = x % 100 == 99 ? pointed : through;
    return same(x) * 5;
}
#endif
#else
/* One runs into the other, as functions that are written in assembler do. */
unsigned runs_on(unsigned x);
__asm__(".text; .globl runs_on, runs_into; .type runs_on, @function; .type runs_into, @function\n"
        "runs_on: lea 3(%rdi), %edi; shl $2, %edi\n.size runs_on, .-runs_on\n"
        "runs_into: lea 1(%rdi), %eax; ret; .balign 16\n.size runs_into, .-runs_into\n");

/* The second runs through padding into the third, whose short jump needs some room nearby when a probe is
 * put at the return before it: no other padding is nearer. */
unsigned checked(unsigned x);
__asm__(".text; .globl long_one, checked, copied\n"
        ".type long_one, @function; .type checked, @function; .type copied, @function\n"
        "long_one: .rept 50; add $3, %edi; .endr; ret\n.size long_one, .-long_one\n"
        "checked: cmp $1000, %edi; ja abort@PLT\n.size checked, .-checked\n"
        ".balign 32\n"
        "copied: mov $1, %eax; cmp $4, %edi; jae 1f; add %edi, %eax; ret\n"
        "1: mov %edi, %eax; add $2, %eax; ret\n.size copied, .-copied\n");

/* What the first calls leaves it registers that a call may change. */
unsigned agreed(unsigned x);
__asm__(".text; .globl agreed, private; .type agreed, @function; .type private, @function\n"
        "agreed: mov $7, %esi; call private; add %edi, %eax; add %esi, %eax; ret\n.size agreed, .-agreed\n"
        ".balign 16\n"
        "private: xchg %rsi, %rdi; xchg %rsi, %rdi; lea 1(%rdi), %eax; ret\n.size private, .-private\n"
        ".balign 16\n");

APART unsigned rare(unsigned x) { return x * 2654435761u >> 3; }

int main(void) {
    unsigned sum = 0;
    for (unsigned i = 0; i < 100; i++) sum += first(i) ^ second(i);
    for (unsigned i = 0; i < 130; i++) sum += through(i);
    for (unsigned i = 0; i < 50; i++)
        if (checked(i) != i + (i < 4 ? 1 : 2) || agreed(i) != 2 * i + 8) return 1;
    printf("%u\n", sum + runs_on(sum));
    return 0;
}
#endif
