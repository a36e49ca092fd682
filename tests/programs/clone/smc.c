/* Code that changes its own code, or lets its own functions do so. */
#define _GNU_SOURCE
#include "made.h"
#include <setjmp.h>

/* --- within one function --- */

LABEL(next_operand);
FRAGMENT(next, "mov %edi, next_operand(%rip)\n"
               "jmp 1f\n"
               "1: .byte 0xb8\n"
               "next_operand: .long 0\n"
               "ret");
SMC(next_instruction, "1 2 3", "1 1 1 | 0 0 0") {
    uint8_t *code = pages(1, RWX);
    PUT(code, next);
    for (long i = 1; i <= 3; i++) say("%ld", call_with(code, i, 0, 0));
}

LABEL(ahead_operand);
FRAGMENT(ahead, "mov %edi, ahead_operand(%rip)\n"
                ".byte 0xb8\n"
                "ahead_operand: .long 0\n"
                "ret");
SMC(ahead_in_the_block, "1 2 3", "0 0 0") {
    uint8_t *code = pages(1, RWX);
    PUT(code, ahead);
    for (long i = 1; i <= 3; i++) say("%ld", call_with(code, i, 0, 0));
}

/* An instruction that becomes another when it was reached already often, in the midst of a block. */
LABEL(opcode_byte);
FRAGMENT(opcode, "mov %rdi, %rax\n"
                 "mov %dl, opcode_byte(%rip)\n"
                 "opcode_byte: .byte 0x01, 0xf0\n" /* add %esi, %eax; 0x29 is sub, 0x31 xor */
                 "ret");
SMC(ahead_another_instruction, "30 10 30 30 10", "30 30 30 30 30") {
    uint8_t *code = pages(1, RWX);
    PUT(code, opcode);
    for (int i = 0; i < 1000; i++) call_with(code, 1, 2, 0x01);
    static const uint8_t opcodes[] = {0x01, 0x29, 0x01, 0x31, 0x29};
    for (int i = 0; i < 5; i++) say("%ld", call_with(code, 20, 10, opcodes[i]));
}

LABEL(growing_operand);
FRAGMENT(growing, "xor %eax, %eax\n"
                  "mov %edi, %ecx\n"
                  "1: .byte 0x05\n" /* add $1, %eax */
                  "growing_operand: .long 1\n"
                  "incl growing_operand(%rip)\n"
                  "dec %ecx\n"
                  "jnz 1b\n"
                  "ret");
SMC(behind_in_a_loop, "55", "10 | 19") {
    uint8_t *code = pages(1, RWX);
    PUT(code, growing);
    say("%ld", call_with(code, 10, 0, 0));
}

/* The loop makes its own way out. */
LABEL(exit_jump);
FRAGMENT(ends_itself, "xor %eax, %eax\n"
                      "1: inc %eax\n"
                      "cmp %edi, %eax\n"
                      "jne 2f\n"
                      "movw $0x9090, exit_jump(%rip)\n"
                      "2: cmp $1000, %eax\n"
                      "je 3f\n"
                      "exit_jump: jmp 1b\n"
                      "3: ret");
SMC(makes_its_exit, "7", "1000") {
    uint8_t *code = pages(1, RWX);
    PUT(code, ends_itself);
    say("%ld", call_with(code, 7, 0, 0));
}

/* So often that nobody would be told of each change. */
SMC(changes_all_the_time, "124750", "0") {
    uint8_t *code = pages(1, RWX);
    long sum = 0;
    for (uint32_t i = 0; i < 500; i++) {
        put_constant(code, i);
        sum += call(code);
    }
    say("%ld", sum);
}

/* The same, and then entered where the loop goes round. */
LABEL(turn_head);
LABEL(turn_operand);
FRAGMENT(turning, "xor %eax, %eax\n"
                  "turn_head: .byte 0x05\n" /* add $1, %eax */
                  "turn_operand: .long 1\n"
                  "dec %edi\n"
                  "jnz turn_head\n"
                  "ret");
SMC(into_a_loop, "500 7 7", "500 1 1") {
    uint8_t *code = pages(1, RWX);
    PUT(code, turning);
    uint8_t *operand = AT(code, turning, turn_operand);
    long sum = 0;
    for (uint32_t i = 0; i < 500; i++) {
        memcpy(operand, &(uint32_t){1}, 4);
        sum += call_with(code, 1, 0, 0);
    }
    say("%ld", sum);
    for (int i = 0; i < 2; i++) {
        call_with(code, 1, 0, 0); /* so that it is known as it is before the change */
        memcpy(operand, &(uint32_t){7}, 4);
        long rest;
        asm volatile("xor %%eax, %%eax\n mov $1, %%edi\n call *%1"
                     : "=&a"(rest) : "r"(AT(code, turning, turn_head)) : "rdi", "cc", "memory");
        say("%ld", rest);
        memcpy(operand, &(uint32_t){1}, 4);
    }
}

/* A string instruction writes over what comes right after it. */
LABEL(over_target);
FRAGMENT(over, "mov %rdx, %rcx\n"
               "lea over_target(%rip), %rax\n"
               "xchg %rdi, %rax\n"
               "rep movsb\n"
               "over_target: mov $1, %eax\n"
               "ret");
SMC(string_over_itself, "2 3", "1 1 | 2 2") {
    static const uint8_t two[] = {0xb8, 2, 0, 0, 0}, three[] = {0xb8, 3, 0, 0, 0};
    uint8_t *code = pages(1, RWX);
    PUT(code, over);
    say("%ld", call_with(code, 0, (long)two, 5));
    say("%ld", call_with(code, 0, (long)three, 5));
}

/* --- one function changes another --- */

SMC(immediate, "1 2", "1 1") {
    uint8_t *code = pages(1, RWX);
    put_constant(code, 1);
    say("%ld", call(code));
    code[1] = 2;
    say("%ld", call(code));
}

LABEL(caller_distance);
FRAGMENT(caller, "sub $8, %rsp\n"
                 ".byte 0xe8\n"
                 "caller_distance: .long 0\n"
                 "add $8, %rsp\n"
                 "ret");
SMC(call_target, "10 20 10", "10 10 10") {
    uint8_t *code = pages(1, RWX), *one = code + 1024, *two = code + 2048;
    PUT(code, caller);
    put_constant(one, 10);
    put_constant(two, 20);
    uint8_t *distance = AT(code, caller, caller_distance);
    uint8_t *const targets[] = {one, two, one};
    for (int i = 0; i < 3; i++) {
        put_distance(distance, targets[i]);
        for (int j = 0; j < 100; j++) call(code);
        say("%ld", call(code));
    }
}
SMC(jump_target, "10 20 10", "10 10 10") {
    uint8_t *code = pages(3, RWX), *one = code + PAGE, *two = code + 2 * PAGE;
    code[0] = 0xe9;
    put_constant(one, 10);
    put_constant(two, 20);
    uint8_t *const targets[] = {one, two, one};
    for (int i = 0; i < 3; i++) {
        put_distance(code + 1, targets[i]);
        for (int j = 0; j < 100; j++) call(code);
        say("%ld", call(code));
    }
}
/* The page of the jump is not touched: what it leads to changes. */
SMC(behind_a_jump, "10 11 12", "10 10 10") {
    uint8_t *code = pages(2, RWX), *target = code + PAGE;
    code[0] = 0xe9;
    put_distance(code + 1, target);
    for (uint32_t i = 10; i < 13; i++) {
        put_constant(target, i);
        for (int j = 0; j < 100; j++) call(code);
        say("%ld", call(code));
    }
}
LABEL(condition_byte);
FRAGMENT(condition, "cmp %rsi, %rdi\n"
                    "condition_byte: je 1f\n"
                    "mov $0, %eax\n"
                    "ret\n"
                    "1: mov $1, %eax\n"
                    "ret");
SMC(jump_condition, "1 0 0 1", "1 0 1 0") {
    uint8_t *code = pages(1, RWX);
    PUT(code, condition);
    say("%ld %ld", call_with(code, 5, 5, 0), call_with(code, 5, 6, 0));
    *AT(code, condition, condition_byte) = 0x75;
    say("%ld %ld", call_with(code, 5, 5, 0), call_with(code, 5, 6, 0));
}

FRAGMENT(adds, "lea (%rdi, %rsi), %rax\n ret");
FRAGMENT(subtracts, "mov %rdi, %rax\n sub %rsi, %rax\n ret");
SMC(whole_function, "13 7 13 7", "13 13 13 13") {
    uint8_t *code = pages(1, RWX);
    for (int i = 0; i < 4; i++) {
        if (i % 2)
            PUT(code, subtracts);
        else
            PUT(code, adds);
        say("%ld", call_with(code, 10, 3, 0));
    }
}
/* Byte by byte, with what is no instruction in between, from the front and from the back. */
SMC(in_pieces, "1 2 3", "1 1 1") {
    static const uint8_t two[] = {0x31, 0xc0, 0xff, 0xc0, 0xff, 0xc0, 0xc3}, /* xor; inc; inc; ret */
        three[] = {0x6a, 0x03, 0x58, 0x90, 0x90, 0x90, 0xc3};                /* push; pop; nops; ret */
    volatile uint8_t *code = pages(1, RWX);
    put_constant((uint8_t *)code, 1);
    say("%ld", call((void *)code));
    for (unsigned i = 0; i < sizeof two; i++) code[i] = 0x06; /* not an instruction */
    for (unsigned i = 0; i < sizeof two; i++) code[i] = two[i];
    say("%ld", call((void *)code));
    for (unsigned i = sizeof three; i-- > 0;) code[i] = 0x0f, code[i] = 0xff, code[i] = three[i];
    say("%ld", call((void *)code));
}
/* With system calls and calls of other functions between the pieces. */
SMC(in_pieces_with_calls, "1 2", "1 1") {
    volatile uint8_t *code = pages(1, RWX);
    put_constant((uint8_t *)code, 1);
    put_constant((uint8_t *)code + 64, 5);
    say("%ld", call((void *)code));
    code[0] = 0x0f; /* half of something */
    getppid();
    CHECK(call((void *)(code + 64)) == 5);
    code[1] = 0xff;
    CHECK(call((void *)(code + 64)) == 5);
    getppid();
    code[1] = 2;
    code[0] = 0xb8;
    say("%ld", call((void *)code));
}
FRAGMENT(long_one, "movabs $0x1111111111111111, %rax\n ret");
FRAGMENT(short_ones, "mov $1, %eax\n shl $4, %eax\n nop\n nop\n ret");
FRAGMENT(shifted, "nop\n mov $7, %eax\n nop\n nop\n nop\n nop\n ret");
SMC(other_lengths, "1111111111111111 10 7 1111111111111111",
    "1111111111111111 1111111111111111 1111111111111111 1111111111111111") {
    uint8_t *code = pages(1, RWX);
    PUT(code, long_one);
    say("%lx", call(code));
    PUT(code, short_ones);
    say("%lx", call(code));
    PUT(code, shifted);
    say("%lx", call(code));
    PUT(code, long_one);
    say("%lx", call(code));
}
/* By all kinds of instructions that can write: locked, exchanging, of vectors, pushing. */
SMC(by_other_writes, "1 2 3 4 5 6 7", "1 1 1 1 1 1 1") {
    uint8_t *code = pages(1, RWX);
    uint32_t *operand = (uint32_t *)(code + 64), value;
    put_constant(code + 63, 1);
    say("%ld", call(code + 63));
    __atomic_fetch_add(operand, 1, __ATOMIC_SEQ_CST);
    say("%ld", call(code + 63));
    value = 3;
    asm volatile("xchg %0, %1" : "+r"(value), "+m"(*operand));
    say("%ld", call(code + 63));
    uint32_t expected = 3;
    CHECK(__atomic_compare_exchange_n(operand, &expected, 4, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    say("%ld", call(code + 63));
    uint8_t sixteen[16];
    memcpy(sixteen, operand, 16);
    sixteen[0] = 5;
    asm volatile("movups %1, %%xmm0\n movups %%xmm0, %0" : "=m"(*(uint8_t(*)[16])operand) : "m"(sixteen) : "xmm0");
    say("%ld", call(code + 63));
    uint64_t eight;
    memcpy(&eight, operand, 8);
    eight = (eight & ~0xfful) | 6;
    asm volatile("mov %%rsp, %%rcx\n lea 8(%1), %%rsp\n push %0\n mov %%rcx, %%rsp"
                 : : "r"(eight), "r"(operand) : "rcx", "memory");
    say("%ld", call(code + 63));
    asm volatile("movnti %1, %0\n sfence" : "=m"(*operand) : "r"(7));
    say("%ld", call(code + 63));
}

FRAGMENT(caller_of, "push %rbx\n mov %rsi, %rbx\n call *%rdi\n"
                    "mov $1, %eax\n" /* what the callee changes */
                    "pop %rbx\n ret");
static uint8_t *to_change;
static uint32_t change_to;
static long changes_its_caller(void) {
    to_change[7] = (uint8_t)change_to;
    return 0;
}
SMC(return_into_changed_code, "1 5 6", "1 1 1") {
    uint8_t *code = pages(1, RWX);
    PUT(code, caller_of);
    to_change = code;
    CHECK(code[6] == 0xb8);
    static const uint32_t values[] = {1, 5, 6};
    for (int i = 0; i < 3; i++) {
        change_to = values[i];
        say("%ld", call_with(code, (long)changes_its_caller, 0, 0));
    }
}

/* setjmp is called by code that is another when longjmp comes back to it. */
LABEL(leaper_operand);
FRAGMENT(leaper, "push %rbx\n mov %rdx, %rbx\n call *%rsi\n test %eax, %eax\n jnz 1f\n call *%rbx\n"
                 "1: .byte 0xb8\n leaper_operand: .long 1\n pop %rbx\n ret");
static jmp_buf place;
static uint8_t *leap_operand;
static void change_and_leap(void) {
    *leap_operand += 1;
    longjmp(place, 1);
}
SMC(longjmp_into_changed_code, "2 3 4", "2 2 2 | 1 1 1") {
    uint8_t *code = pages(1, RWX);
    PUT(code, leaper);
    leap_operand = AT(code, leaper, leaper_operand);
    for (int i = 0; i < 3; i++) say("%ld", call_with(code, (long)place, (long)_setjmp, (long)change_and_leap));
}

/* --- pages with more than one thing on them --- */

SMC(data_beside_code, "300000 7 9", "300000 7 7") {
    uint8_t *code = pages(1, RWX);
    volatile uint64_t *data = (uint64_t *)(code + 2048);
    put_constant(code, 7);
    long last = 0;
    for (int i = 0; i < 100000; i++) {
        *data += 3;
        if (i % 100 == 0) last = call(code);
    }
    say("%lu %ld", *data, last);
    put_constant(code, 9);
    say("%ld", call(code));
}
/* The code writes to its own page, as code with its data next to it does. */
LABEL(counter_value);
LABEL(counter_operand);
FRAGMENT(counter, "mov $1000, %ecx\n 1: incq counter_value(%rip)\n loop 1b\n"
                  "mov counter_value(%rip), %rax\n .byte 0x48, 0x05\n counter_operand: .long 0\n ret\n"
                  ".balign 8\n counter_value: .quad 0");
SMC(data_of_the_code, "1000 2005 3005", "1000 2000 3000") {
    uint8_t *code = pages(1, RWX);
    PUT(code, counter);
    say("%ld", call(code));
    *AT(code, counter, counter_operand) = 5;
    say("%ld", call(code));
    say("%ld", call(code));
}
/* The stack is on the page of the code: each call writes there. */
FRAGMENT(own_stack, "mov %rsp, %rdx\n lea 2048(%rdi), %rsp\n mov $100, %ecx\n"
                    "1: push %rcx\n call *%rsi\n pop %rcx\n loop 1b\n mov %rdx, %rsp\n ret");
SMC(stack_beside_code, "3 4", "3 3") {
    uint8_t *code = pages(1, RWX);
    PUT(code, own_stack);
    put_constant(code + 3000, 3);
    say("%ld", call_with(code, (long)code, (long)code + 3000, 0));
    put_constant(code + 3000, 4);
    say("%ld", call_with(code, (long)code, (long)code + 3000, 0));
}
SMC(many_functions, "4032 4096 64", "4032 4032 0") {
    uint8_t *code = pages(2, RWX);
    long sum = 0, right = 0;
    for (uint32_t i = 0; i < 64; i++) put_constant(code + 64 + i * 64, i * 2);
    for (uint32_t i = 0; i < 64; i++) sum += call(code + 64 + i * 64);
    say("%ld", sum);
    for (uint32_t changed = 0; changed < 64; changed++) {
        put_constant(code + 64 + changed * 64, changed * 2 + 1);
        right += call(code + 64 + changed * 64) == changed * 2 + 1;
        for (uint32_t i = 0; i < 64; i += 9) call(code + 64 + i * 64);
    }
    sum = 0;
    for (uint32_t i = 0; i < 64; i++) sum += call(code + 64 + i * 64);
    say("%ld %ld", sum, right);
}
SMC(second_page, "12345678 12abcd78 12ab5678", "12345678 12345678 12345678") {
    uint8_t *code = pages(2, RWX), *start = code + PAGE - 2; /* the opcode and one byte on the first */
    put_constant(start, 0x12345678);
    say("%lx", call(start));
    code[PAGE] = 0xcd, code[PAGE + 1] = 0xab;
    say("%lx", call(start));
    code[PAGE] = 0x56;
    say("%lx", call(start));
}
/* What is read is what was written, whether it was executed or not. */
SMC(read_back, "b8 2 c3 2", "b8 2 c3 1") {
    volatile uint8_t *code = pages(1, RWX);
    put_constant((uint8_t *)code, 1);
    call((void *)code);
    code[1] = 2;
    say("%x %x %x", code[0], code[1], code[5]);
    say("%ld", call((void *)code));
}

/* --- as compilers at run time do --- */

SMC(regenerated, "49995000", "0") {
    uint8_t *code = pages(1, RWX);
    long sum = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        put_constant(code, i);
        sum += call(code);
    }
    say("%ld", sum);
}
/* Functions of all sizes, over each other, anywhere in the space for code. */
/* How many go unseen depends on what is flushed by then. */
SMC(space_reused, "all", "some") {
    uint8_t *code = pages(16, RWX);
    uint32_t seed = 1;
    long right = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        seed = seed * 1103515245 + 12345;
        uint8_t *start = code + seed / 7 % 512 * 64;
        uint32_t filling = seed / 3 % 200;
        memset(start, 0x90, filling);
        put_constant(start + filling, i);
        right += call(start) == i;
    }
    say(right == 2000 ? "all" : "some");
}
/* A call that is compiled when it comes for the first time: it goes to a stub that patches it. */
LABEL(lazy_distance);
FRAGMENT(lazy, "sub $8, %rsp\n .byte 0xe8\n lazy_distance: .long 0\n add $8, %rsp\n ret");
FRAGMENT(stub, "push %rax\n mov 8(%rsp), %rdi\n movabs $0, %rax\n call *%rax\n pop %rcx\n jmp *%rax");
static int compiled;
static void *compile(uint8_t *return_address) {
    compiled++;
    uint8_t *target = (uint8_t *)((uint64_t)return_address & ~(PAGE - 1)) + 2048;
    put_constant(target, 77);
    put_distance(return_address - 4, target);
    return target;
}
SMC(lazy_call, "77 77 77 1", "77 77 77 3") {
    uint8_t *code = pages(1, RWX), *patcher = code + 1024;
    PUT(code, lazy);
    PUT(patcher, stub);
    uint64_t address = (uint64_t)compile;
    memcpy(patcher + 8, &address, 8);
    put_distance(AT(code, lazy, lazy_distance), patcher);
    for (int i = 0; i < 3; i++) say("%ld", call(code));
    say("%d", compiled);
}
/* A counter in the code, that replaces the code when it is at its end. */
FRAGMENT(tiered, "decl 1f(%rip)\n jz 2f\n mov $1, %eax\n ret\n 2: lea tiered(%rip), %rdi\n jmp *%rsi\n"
                 ".balign 4\n 1: .long 100");
static long replace(uint8_t *code) {
    put_constant(code, 2);
    return call(code);
}
SMC(replaced_when_hot, "99 202", "99 101") {
    uint8_t *code = pages(1, RWX);
    PUT(code, tiered);
    long sum = 0;
    for (int i = 0; i < 99; i++) sum += call_with(code, 0, (long)replace, 0);
    say("%ld", sum);
    sum = 0;
    for (int i = 0; i < 101; i++) sum += call_with(code, 0, (long)replace, 0);
    say("%ld", sum);
}
