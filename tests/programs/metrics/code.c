/* Code of which every instruction is known. See truth.h. */
#define VALUES(X) X(blocks) X(taken) X(loads) X(stores)
#include "truth.h"

#define ROUNDS 100

/* Sums up an array, and writes every sum that is odd. */
long sums(const long *values, long *odd, long count);
__asm__(".text\n"
        ".globl sums\n"
        ".type sums, @function\n"
        "sums:\n"
        "    xor %eax, %eax\n"
        "    xor %ecx, %ecx\n"
        "    lea (%rdi,%rdx,8), %rdx\n" /* an address, but no memory is read */
        ".Lnext:\n"
        "    add (%rdi), %rax\n" /* a load */
        "    lea 8(%rdi), %rdi\n"
        "    test $1, %al\n"
        "    jz .Leven\n"
        "    mov %rax, (%rsi)\n" /* a store */
        "    addq $1, 8(%rsi)\n" /* both */
        "    nopw 0(%rax,%rax,1)\n"
        ".Leven:\n"
        "    inc %rcx\n"
        "    cmp %rdx, %rdi\n"
        "    jne .Lnext\n"
        "    ret\n" /* what it takes from the stack is no load */
        ".size sums, .-sums\n");

static void work(long amount) {
    long values[ROUNDS], odd[2] = {0}, sum = 0, odds = 0;
    for (int i = 0; i < ROUNDS; i++) {
        values[i] = i;
        sum += i;
        odds += sum & 1;
    }
    for (long i = 0; i < amount; i++) check(sums(values, odd, ROUNDS) == sum, "the sum");
    check(odd[1] == odds * amount, "the odd sums");
    /* Blocks: the beginning, then for each value the load, the store if it is odd, and the end. */
    ADD(blocks, amount * (1 + ROUNDS * 2 + odds + 1));
    /* Taken: over the store if the sum is even, and back for each value but the first. */
    ADD(taken, amount * (ROUNDS - odds + ROUNDS - 1));
    ADD(loads, amount * (ROUNDS + odds));
    ADD(stores, amount * 2 * odds);
}

int main(int argc, char **argv) { return truth_main(argc, argv); }
