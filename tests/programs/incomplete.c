/* Functions that can be entered by a probe, but not left by one.
 *
 * They jump through a pointer that lies in memory which the program can write to: the code alone does not say where
 * that leads, so what is behind it cannot be moved, or even be seen. As they have something on the stack, the jump
 * cannot be a call of another function either.
 *
 *     incomplete ROUNDS    calls each function so many times, and prints how often in "name count" lines
 *     incomplete           prints "ready", and does so once for each line of its input
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

void *half_way, *hidden_way;
long half_count, hidden_count, plain_count;

__asm__(".text\n"
        /* Left by either of two returns: one that is known, and one that only the pointer leads to. A jump at the
         * first would cover the second. */
        ".globl half\n.type half, @function\n"
        "half: push %rbx; incq half_count(%rip); test $1, %edi; jz 1f; mov half_way(%rip), %rdx; jmp *%rdx\n"
        "1: pop %rbx; ret\n"
        ".globl half_end\nhalf_end: pop %rbx; ret\n.size half, .-half\n"
        /* Left by a return that nothing but the pointer leads to. */
        ".globl hidden\n.type hidden, @function\n"
        "hidden: push %rbx; incq hidden_count(%rip); mov hidden_way(%rip), %rdx; jmp *%rdx\n"
        ".globl hidden_end\nhidden_end: pop %rbx; ret\n.size hidden, .-hidden\n");
void half(int), hidden(void), half_end(void), hidden_end(void);

__attribute__((noipa)) void plain(void) { plain_count++; }

static void round_of_calls(int i) {
    half(i);
    hidden();
    plain();
}

int main(int argc, char **argv) {
    half_way = half_end;
    hidden_way = hidden_end;
    if (argc > 1) {
        for (int i = 0; i < atoi(argv[1]); i++) round_of_calls(i);
        printf("half %ld\nhidden %ld\nplain %ld\n", half_count, hidden_count, plain_count);
        return 7;
    }
    char line[8];
    puts("ready");
    fflush(stdout);
    for (int i = 0; fgets(line, sizeof line, stdin); i++) {
        round_of_calls(i);
        puts("done");
        fflush(stdout);
    }
    return 7;
}
