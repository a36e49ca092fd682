/* A function that reads and writes memory in many ways, and a program that says where. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

long words[64];
unsigned char letters[256];
char byte;
long by_gs[8];
unsigned long top;

void touch(long *words, long index, long gs_offset);

__asm__(".text; .globl touch; .type touch, @function\n"
        "touch:\n"
        "  mov %rsp, top(%rip)\n"                     /* store top 8 */
        "  mov (%rdi), %rax\n"                        /* load words 8 */
        "  movl $7, 4(%rdi,%rsi,4)\n"                 /* store words + 4 index + 4, 4 */
        "  incb byte(%rip)\n"                         /* load, store byte 1 */
        "  mov %fs:0, %rax\n"                         /* load fs 8 */
        "  mov %rsi, %gs:8(%rdx)\n"                   /* store gs + offset + 8, 8 */
        "  movups 16(%rdi), %xmm0\n"                  /* load words + 16, 16 */
        "  push %rbx\n"                               /* store top - 8, 8 */
        "  pushq 8(%rdi)\n"                           /* load words + 8; store top - 16, 8 */
        "  popq 40(%rdi)\n"                           /* load top - 16; store words + 40, 8 */
        "  lea letters(%rip), %rbx\n"
        "  mov $0x1203, %eax\n"
        "  xlatb\n"                                   /* load letters + 3, 1 */
        "  mov %rdi, %r8\n"
        "  mov %rdi, %rsi\n"
        "  lea 128(%r8), %rdi\n"
        "  movsq\n"                                   /* load words 8; store words + 128, 8 */
        "  mov $5, %ecx\n"
        "  xor %eax, %eax\n"
        "  rep stosw\n"                               /* store words + 136, 10 */
        "  mov %r8, %rsi\n"
        "  mov %r8, %rdi\n"
        "  cmpsb\n"                                   /* load words 1, load words 1 */
        "  call 1f\n"                                 /* store top - 16, 8 */
        "  pop %rbx\n"                                /* load top - 8, 8 */
        "  lea 8(%r8), %rax\n"
        "  prefetcht0 (%rax)\n"
        "  ret\n"                                     /* load top 8 */
        "1: ret\n"                                    /* load top - 16, 8 */
        ".size touch, .-touch\n");

static void say(const char *kind, const void *address, int size) {
    printf("%s %lu %d\n", kind, (unsigned long)address, size);
}

int main(void) {
    const long index = 9, offset = 16;
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    syscall(SYS_arch_prctl, ARCH_SET_GS, by_gs);
    puts("ready");
    fflush(stdout);
    while (getchar() == '\n') {
        touch(words, index, offset);
        char *at = (char *)words, *stack = (char *)top;
        say("store", &top, 8);
        say("load", at, 8);
        say("store", at + 4 * index + 4, 4);
        say("load", &byte, 1);
        say("store", &byte, 1);
        say("load", __builtin_thread_pointer(), 8);
        say("store", (char *)by_gs + offset + 8, 8);
        say("load", at + 16, 16);
        say("store", stack - 8, 8);
        say("load", at + 8, 8);
        say("store", stack - 16, 8);
        say("load", stack - 16, 8);
        say("store", at + 40, 8);
        say("load", letters + 3, 1);
        say("load", at, 8);
        say("store", at + 128, 8);
        say("store", at + 136, 10);
        say("load", at, 1);
        say("load", at, 1);
        say("store", stack - 16, 8);
        say("load", stack - 16, 8);
        say("load", stack - 8, 8);
        say("load", stack, 8);
        puts("end");
        fflush(stdout);
    }
    return 0;
}
