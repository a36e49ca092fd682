/* Functions of which each instruction is known. For a number on a line of its standard input it calls each of them
 * once with an array of so many elements, and answers with a line. */
#include <stdio.h>
#include <stdlib.h>

/* Reads each element once. */
__asm__(".text\n.globl adds\n.type adds, @function\n"
        "adds: .cfi_startproc\n push %rbx\n xor %eax, %eax\n lea (%rdi,%rsi,8), %rbx\n"
        "1: add (%rdi), %rax\n prefetcht0 64(%rdi)\n add $8, %rdi\n cmp %rbx, %rdi\n jne 1b\n"
        "pop %rbx\n ret\n.cfi_endproc\n.size adds, .-adds\n");
/* Writes each element once. */
__asm__(".text\n.globl fills\n.type fills, @function\n"
        "fills: .cfi_startproc\n xor %eax, %eax\n"
        "1: mov %rax, (%rdi,%rax,8)\n inc %rax\n cmp %rsi, %rax\n jne 1b\n"
        "nopl 8(%rax)\n ret\n.cfi_endproc\n.size fills, .-fills\n");
/* Reads and writes each element, every second time in a loop within the loop. */
__asm__(".text\n.globl doubles\n.type doubles, @function\n"
        "doubles: .cfi_startproc\n mov %rsi, %rcx\n"
        "1: mov $2, %edx\n"
        "2: incq -8(%rdi,%rcx,8)\n dec %edx\n jne 2b\n"
        "dec %rcx\n jne 1b\n mov %rcx, %rax\n ret\n.cfi_endproc\n.size doubles, .-doubles\n");
/* Calls the kernel: getpid. */
__asm__(".text\n.globl asks\n.type asks, @function\n"
        "asks: .cfi_startproc\n mov $39, %eax\n syscall\n mov %rax, %rdx\n mov %rdx, %rax\n ret\n"
        ".cfi_endproc\n.size asks, .-asks\n");
/* Has another function return in its stead. */
__asm__(".text\n.globl passes\n.type passes, @function\n"
        "passes: .cfi_startproc\n nop\n nop\n nop\n nop\n nop\n jmp asks\n.cfi_endproc\n.size passes, .-passes\n");
/* Jumps where nobody can tell. */
__asm__(".text\n.globl strays\n.type strays, @function\n"
        "strays: .cfi_startproc\n lea 1f(%rip), %rax\n lea (%rax,%rdi), %rax\n imul $1, %rax, %rax\n jmp *%rax\n"
        "1: mov $7, %eax\n ret\n.cfi_endproc\n.size strays, .-strays\n");

long adds(long *, long), fills(long *, long), doubles(long *, long), asks(void), passes(void), strays(long);

int main(void) {
    static long elements[1000];
    char line[32];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        long count = atol(line);
        long sum = fills(elements, count) + adds(elements, count) + doubles(elements, count);
        printf("%ld %ld %ld\n", sum, asks() - passes(), strays(0));
        fflush(stdout);
    }
    return 0;
}
