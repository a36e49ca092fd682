/* Frames that change their stack while they live: by ucontext and by a switch of our own; see lockstep.h. */
#define _GNU_SOURCE
#include <stdint.h>
#include <ucontext.h>

#define FUNCTIONS(X)                                                                                       \
    X(context_body) X(context_step) X(context_yield) X(switch_body) X(switch_step) X(switch_yield) X(switch_stacks)
#include "lockstep.h"

enum { STACK = 128 << 10, STEPS = 8 };

struct pair {
    ucontext_t inside, outside;
    void *here, *there; /* the two stacks of our own switch: ours and the other's */
    uint64_t value;
    char *stack;
};
static __thread struct pair pair;
static __thread struct pair *self;

/* By ucontext. */
APART void context_yield(struct pair *p) {
    COUNT(context_yield);
    check(swapcontext(&p->inside, &p->outside) == 0, "no swap");
}
APART uint64_t context_step(struct pair *p, uint64_t x) {
    COUNT(context_step);
    context_yield(p);
    return x + 1;
}
APART void context_body(void) {
    COUNT(context_body);
    struct pair *p = self;
    uint64_t x = 0;
    for (int i = 0; i < STEPS; i++) p->value = x = context_step(p, x);
}

/* By hand: the registers that must be kept go to the old stack and come from the new one. It counts where
 * its third argument points. */
__asm__(".text\n.globl switch_stacks\n.type switch_stacks, @function\n"
        "switch_stacks:\n"
        "  incq (%rdx)\n"
        "  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov %rsi, %rsp\n"
        "  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n"
        "  ret\n"
        ".size switch_stacks, .-switch_stacks\n");
void switch_stacks(void **old, void *next, unsigned long *count);
#define SWITCH(from, to) switch_stacks(&(from), (to), &counts[switch_stacks_number])

APART void switch_yield(struct pair *p) {
    COUNT(switch_yield);
    SWITCH(p->there, p->here);
}
APART uint64_t switch_step(struct pair *p, uint64_t x) {
    COUNT(switch_step);
    switch_yield(p);
    return x + 2;
}
APART void switch_body(void) {
    COUNT(switch_body);
    struct pair *p = self;
    uint64_t x = 0;
    for (int i = 0; i < STEPS; i++) p->value = x = switch_step(p, x);
    /* Never returns: nobody called it. */
    for (;;) SWITCH(p->there, p->here);
}

static void one_round(unsigned long number) {
    struct pair *p = self = &pair;
    (void)number;
    if (!p->stack) check((p->stack = malloc(STACK)) != NULL, "no stack");
    check(getcontext(&p->inside) == 0, "no context");
    p->inside.uc_stack.ss_sp = p->stack;
    p->inside.uc_stack.ss_size = STACK;
    p->inside.uc_link = &p->outside;
    p->value = 0;
    makecontext(&p->inside, context_body, 0);
    for (int i = 0; i <= STEPS; i++) check(swapcontext(&p->outside, &p->inside) == 0, "no swap");
    check(p->value == STEPS, "a context lost its way");

    /* Six registers, the first address to return to, and one more word so that the stack is aligned there. */
    uint64_t *top = (uint64_t *)(p->stack + STACK) - 8;
    memset(top, 0, 8 * sizeof *top);
    top[6] = (uint64_t)(uintptr_t)switch_body;
    p->there = top;
    for (int i = 0; i <= STEPS; i++) SWITCH(p->here, p->there);
    check(p->value == 2 * STEPS, "a stack lost its way");
}

int main(int argc, char **argv) { return lockstep_main(argc, argv); }
