/* Flags, general registers and the memory operands that only code in its own place has. */
#define _GNU_SOURCE
#include "check.h"
#include <stddef.h>

#define OFTEN 200

/* --- flags --- */

/* Carry, parity, auxiliary, zero, sign, direction, overflow. */
static const unsigned bits[] = {0, 2, 4, 6, 7, 10, 11};
#define MASK 0xcd5ul

/* Flags are given, something happens, flags are taken. */
#define KEEPS(name, what)                                                                           \
    ASSEMBLY static uint64_t keeps_##name(uint64_t flags __attribute__((unused))) {                 \
        asm("push %rbx\n"                                                                           \
            "lea 5f(%rip), %rax\n"                                                                  \
            "lea 6f(%rip), %rbx\n"                                                                  \
            "mov %rbx, flow_target_" #name "(%rip)\n"                                               \
            "push %rdi\n"                                                                           \
            "popfq\n" what "pushfq\n"                                                               \
            "pop %rax\n"                                                                            \
            "cld\n"                                                                                 \
            "pop %rbx\n"                                                                            \
            "ret\n"                                                                                 \
            "5: ret\n"                                                                              \
            "7: ret $8\n"                                                                           \
            ".pushsection .data, \"aw\"\n"                                                          \
            "flow_target_" #name ": .quad 0\n"                                                      \
            ".popsection\n");                                                                       \
    }

KEEPS(nothing, "6: nop\n")
KEEPS(call, "call 5f\n 6: nop\n")
KEEPS(indirect_call, "call *%rax\n 6: nop\n")
KEEPS(return_with_number, "push $0\n call 7f\n 6: nop\n")
KEEPS(jump, "jmp 6f\n ud2\n 6: nop\n")
KEEPS(indirect_jump, "jmp *%rbx\n ud2\n 6: nop\n")
KEEPS(jump_by_memory, "jmp *flow_target_jump_by_memory(%rip)\n ud2\n 6: nop\n")
KEEPS(pushed_return, "push %rbx\n ret\n ud2\n 6: nop\n")
KEEPS(conditions, "jc 1f\n 1: jz 1f\n 1: js 1f\n 1: jo 1f\n 1: jp 1f\n 1: jbe 1f\n 1: jle 6f\n 6: nop\n")
KEEPS(loop, "mov $3, %ecx\n 6: loop 6b\n jrcxz 1f\n ud2\n 1: nop\n")
KEEPS(system_call, "mov $39, %eax\n syscall\n 6: nop\n")
KEEPS(rip_relative, "push flow_target_rip_relative(%rip)\n popq flow_target_rip_relative(%rip)\n"
                    "mov flow_target_rip_relative(%rip), %rax\n lea flow_target_rip_relative(%rip), %rcx\n"
                    "xchg %rax, flow_target_rip_relative(%rip)\n 6: nop\n")

static uint64_t (*const keepers[])(uint64_t) = {
    keeps_nothing,       keeps_call,           keeps_indirect_call, keeps_return_with_number, keeps_jump,
    keeps_indirect_jump, keeps_jump_by_memory, keeps_pushed_return, keeps_conditions,         keeps_loop,
    keeps_system_call,   keeps_rip_relative,
};

CASE(flags_kept) {
    for (unsigned keeper = 0; keeper < sizeof keepers / sizeof *keepers; keeper++)
        for (int round = 0; round < 5; round++)
            for (unsigned set = 0; set < 1u << 7; set++) {
                uint64_t flags = 0x202;
                for (int bit = 0; bit < 7; bit++) flags |= (uint64_t)(set >> bit & 1) << bits[bit];
                uint64_t after = keepers[keeper](flags);
                if ((after & MASK) != (flags & MASK))
                    wrong("keeper %u: flags were %#lx, are %#lx", keeper, flags, after);
                CHECK(after & 0x200);
            }
    /* cpuid is rbx's, too. */
    uint64_t flags = 0x202 | 0x8d5;
    uint64_t after;
    asm volatile("push %1\n popfq\n mov $0, %%eax\n cpuid\n pushfq\n pop %0"
                 : "=&S"(after) : "D"(flags) : "rax", "rbx", "rcx", "rdx", "cc", "memory");
    SAME(after & MASK, flags & MASK);
}

/* A helper that answers in a flag, as runtime systems have them. */
#define ANSWERS(name, compute, condition)                                                           \
    ASSEMBLY static long answers_##name(long a __attribute__((unused)), long b __attribute__((unused))) { \
        asm("sub $8, %rsp\n"                                                                        \
            "call 1f\n"                                                                             \
            "set" condition " %al\n"                                                                \
            "movzx %al, %eax\n"                                                                     \
            "lea 1f(%rip), %rdx\n"                                                                  \
            "push %rax\n"                                                                           \
            "call *%rdx\n"                                                                          \
            "set" condition " %cl\n"                                                                \
            "pop %rax\n"                                                                            \
            "movzx %cl, %ecx\n"                                                                     \
            "lea (%rax, %rcx, 2), %rax\n"                                                           \
            "lea 8(%rsp), %rsp\n"                                                                   \
            "ret\n"                                                                                 \
            "1: " compute "\n"                                                                      \
            "ret");                                                                                 \
    }
ANSWERS(carry, "mov %rdi, %rax\n add %rsi, %rax", "c")
ANSWERS(overflow, "mov %rdi, %rax\n add %rsi, %rax", "o")
ANSWERS(zero, "cmp %rsi, %rdi", "z")
ANSWERS(sign, "cmp %rsi, %rdi", "s")
ANSWERS(parity, "test %rsi, %rdi", "p")
ANSWERS(less, "cmp %rsi, %rdi", "l")
ANSWERS(above, "cmp %rsi, %rdi", "a")
CASE(flags_as_answers) {
    static const long values[] = {0, 1, -1, 5, INT64_MAX, INT64_MIN, 0x33, 0x1234567890};
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) {
            long a = values[i], b = values[j], sum;
            for (int round = 0; round < 3; round++) {
                SAME(answers_carry(a, b), (uint64_t)a + (uint64_t)b < (uint64_t)a ? 3 : 0);
                SAME(answers_overflow(a, b), __builtin_add_overflow(a, b, &sum) ? 3 : 0);
                SAME(answers_zero(a, b), a == b ? 3 : 0);
                SAME(answers_sign(a, b), (long)((uint64_t)a - (uint64_t)b) < 0 ? 3 : 0);
                SAME(answers_parity(a, b), __builtin_parityl(a & b & 255) ? 0 : 3);
                SAME(answers_less(a, b), a < b ? 3 : 0);
                SAME(answers_above(a, b), (uint64_t)a > (uint64_t)b ? 3 : 0);
            }
        }
}

/* --- general registers --- */

/* All fifteen at once, through every kind of transfer, often enough that code becomes hot. */
ASSEMBLY static uint64_t all_registers(long rounds __attribute__((unused))) {
    asm("push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "push %rdi\n"
        "lea 3f(%rip), %rax\n"
        "mov %rax, registers_target(%rip)\n"
        "movabs $0x0101010101010101, %rax\n"
        "lea 1(%rax), %rbx\n lea 2(%rax), %rcx\n lea 3(%rax), %rdx\n lea 4(%rax), %rsi\n"
        "lea 5(%rax), %rdi\n lea 6(%rax), %rbp\n lea 7(%rax), %r8\n lea 8(%rax), %r9\n"
        "lea 9(%rax), %r10\n lea 10(%rax), %r11\n lea 11(%rax), %r12\n lea 12(%rax), %r13\n"
        "lea 13(%rax), %r14\n lea 14(%rax), %r15\n"
        "1: call 2f\n"
        "call *registers_helper(%rip)\n"
        "jmp *registers_target(%rip)\n"
        "ud2\n"
        "3: push $0\n"
        "call 4f\n"
        "pushq registers_after(%rip)\n"
        "ret\n"
        "5: decq (%rsp)\n"
        "jnz 1b\n"
        "add $8, %rsp\n"
        "add %rbx, %rax\n add %rcx, %rax\n add %rdx, %rax\n add %rsi, %rax\n add %rdi, %rax\n"
        "add %rbp, %rax\n add %r8, %rax\n add %r9, %rax\n add %r10, %rax\n add %r11, %rax\n"
        "add %r12, %rax\n add %r13, %rax\n add %r14, %rax\n add %r15, %rax\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
        "ret\n"
        "2: ret\n"
        "4: ret $8\n"
        ".pushsection .data.rel, \"aw\"\n"
        "registers_target: .quad 0\n"
        "registers_helper: .quad 2b\n"
        "registers_after: .quad 5b\n"
        ".popsection");
}
CASE(registers_kept) {
    for (long rounds = 1; rounds < 100000; rounds *= 7)
        SAME(all_registers(rounds), 0x0101010101010101ul * 15 + 105);
}

/* --- memory operands relative to the instruction --- */

static struct {
    _Alignas(64) uint64_t wide[8];
    uint64_t pair[2];
    uint64_t value;
    uint32_t half;
    uint8_t byte, other;
    uint16_t control;
    float single;
    void *target;
} here __attribute__((used));
#define HERE(field) "here + %c[" #field "](%%rip)"
#define OFFSETS                                                                                     \
    [value] "i"(offsetof(typeof(here), value)), [half] "i"(offsetof(typeof(here), half)),           \
        [byte] "i"(offsetof(typeof(here), byte)), [other] "i"(offsetof(typeof(here), other)),       \
        [pair] "i"(offsetof(typeof(here), pair)), [wide] "i"(offsetof(typeof(here), wide)),         \
        [control] "i"(offsetof(typeof(here), control)), [single] "i"(offsetof(typeof(here), single)), \
        [target] "i"(offsetof(typeof(here), target))
#define ALL "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "cc", "memory"

APART static void relative_once(void) {
    uint64_t out, zero;
    here.value = 100;
    asm volatile("sub $256, %%rsp\n pushq " HERE(value) "\n pop %0\n push $7\n popq " HERE(value) "\n add $256, %%rsp"
                 : "=&r"(out) : OFFSETS : ALL);
    SAME(out, 100);
    SAME(here.value, 7);
    asm volatile("addl $0x11223344, " HERE(value) "\n addq $-1, " HERE(value) "\n addb $1, " HERE(byte)
                 "\n incl " HERE(half) "\n notq " HERE(pair) "\n lock addq $3, " HERE(pair)
                 : : OFFSETS : ALL);
    SAME(here.value, 0x11223344 + 6);
    /* No prefix may be added to these: the high bytes would become other registers. */
    asm volatile("mov $0x1234, %%eax\n mov %%ah, " HERE(byte) "\n mov " HERE(byte) ", %%bh\n add %%bh, " HERE(byte)
                 "\n xchg %%ch, " HERE(other)
                 : : OFFSETS : ALL);
    SAME(here.byte, 0x24);
    here.value = 5;
    asm volatile("mov $5, %%eax\n mov $9, %%ecx\n lock cmpxchg %%rcx, " HERE(value) "\n setz %b0\n"
                 "mov $4, %%edx\n lock xadd %%rdx, " HERE(value)
                 : "=&r"(out) : OFFSETS : ALL);
    SAME(out & 1, 1);
    SAME(here.value, 13);
    here.pair[0] = 1, here.pair[1] = 2;
    asm volatile("mov $1, %%eax\n mov $2, %%edx\n mov $30, %%ebx\n mov $40, %%ecx\n"
                 "lock cmpxchg16b " HERE(pair)
                 : : OFFSETS : ALL);
    SAME(here.pair[0], 30);
    SAME(here.pair[1], 40);
    here.value = 1000;
    asm volatile("mov $17000, %%eax\n xor %%edx, %%edx\n divq " HERE(value) "\n mov %%rax, %0\n"
                 "imul $3, " HERE(value) ", %%rcx\n add %%rcx, %0\n"
                 "mulq " HERE(value) "\n add %%rax, %0\n"
                 "bsf " HERE(value) ", %%rcx\n add %%rcx, %0\n popcnt " HERE(value) ", %%rcx\n add %%rcx, %0\n"
                 "movzwl " HERE(value) ", %%ecx\n add %%rcx, %0\n movslq " HERE(value) ", %%rcx\n add %%rcx, %0\n"
                 "cmpq $1000, " HERE(value) "\n cmove " HERE(value) ", %%rcx\n"
                 "sete " HERE(byte) "\n add %%rcx, %0\n btsq $1, " HERE(value) "\n shlq $2, " HERE(value) "\n"
                 "testq $8, " HERE(value) "\n jz 9f\n"
                 "mov $1, %%ecx\n shldq $4, %%rcx, " HERE(value) "\n"
                 "movnti %%rcx, " HERE(pair) "\n jmp 8f\n 9: ud2\n 8:"
                 : "=&D"(out) : OFFSETS : "rax", "rbx", "rcx", "rdx", "rsi", "cc", "memory");
    SAME(out, 17 + 3000 + 17000 + 3 + 6 + 1000 + 1000 + 1000);
    SAME(here.value, (1002 << 2) << 4);
    SAME(here.byte, 1);
    /* Calls and jumps through such an operand, also with a register full of something else. */
    asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, " HERE(target) "\n xor %0, %0\n mov $-1, %%eax\n"
                 "sub $128, %%rsp\n call *" HERE(target) "\n add $128, %%rsp\n"
                 "lea 2f(%%rip), %%rax\n mov %%rax, " HERE(target) "\n jmp *" HERE(target) "\n"
                 "1: inc %0\n ret\n 2: inc %0"
                 : "=&D"(out) : OFFSETS : "rax", "rbx", "rcx", "rdx", "rsi", "cc", "memory");
    SAME(out, 2);
    /* Vectors and the old coprocessor. */
    for (int i = 0; i < 8; i++) here.wide[i] = 0x1111111111111111ul * (uint64_t)(i + 1);
    here.single = 1.5f;
    asm volatile("movaps " HERE(wide) ", %%xmm0\n paddq " HERE(wide) ", %%xmm0\n movups %%xmm0, " HERE(pair)
                 "\n flds " HERE(single) "\n fadds " HERE(single) "\n fstps " HERE(single)
                 "\n fnstcw " HERE(control) "\n fldcw " HERE(control) "\n stmxcsr " HERE(half)
                 "\n ldmxcsr " HERE(half) "\n prefetcht0 " HERE(value) "\n pcmpistri $0, " HERE(wide) ", %%xmm0"
                 : : OFFSETS : ALL);
    SAME(here.pair[1], 0x4444444444444444);
    CHECK(here.single == 3.0f);
    SAME(here.control, 0x37f);
    SAME(here.half & 0xffc0, 0x1f80);
    if (__builtin_cpu_supports("avx512f"))
        asm volatile("vmovdqa64 " HERE(wide) ", %%zmm0\n vpaddq " HERE(wide) "%{1to8%}, %%zmm0, %%zmm0\n"
                     "vmovdqu64 %%zmm0, " HERE(wide) "\n kmovw " HERE(byte) ", %%k1\n"
                     "vmovdqu64 " HERE(wide) ", %%zmm16%{%%k1%}\n vzeroupper"
                     : : OFFSETS : ALL);
    else
        for (int i = 7; i >= 0; i--) here.wide[i] += here.wide[0];
    SAME(here.wide[7], 0x9999999999999999);
    asm volatile("lea 1f(%%rip), %0\n lea 1f(%%eip), %k1\n 1: sub %1, %0" : "=&r"(out), "=&r"(zero));
    CHECK((out & 0xffffffff) == 0);
}
CASE(rip_relative) {
    for (int i = 0; i < OFTEN; i++) relative_once();
}

/* --- string instructions --- */

CASE(strings) {
    static char from[64], to[64];
    uint64_t left, flags;
    for (int round = 0; round < OFTEN; round++) {
        for (int i = 0; i < 64; i++) from[i] = (char)(i + 1), to[i] = 0;
        char *source = from + 9, *target = to + 19;
        /* Backwards, with a call, a jump through a register and a system call on the way. */
        asm volatile("std\n mov $5, %%ecx\n rep movsb\n lea -128(%%rsp), %%rsp\n call 1f\n lea 128(%%rsp), %%rsp\n"
                     "lea 2f(%%rip), %%rax\n jmp *%%rax\n 1: movsb\n ret\n"
                     "2: mov $39, %%eax\n syscall\n movsb\n pushfq\n pop %0\n cld"
                     : "=&r"(flags), "+S"(source), "+D"(target) : : "rax", "rcx", "r11", "cc", "memory");
        CHECK(flags & 0x400);
        CHECK(source == from + 2 && target == to + 12);
        for (int i = 13; i <= 19; i++) SAME(to[i], i - 10 + 1);
        target = to;
        left = 64;
        asm volatile("repne scasb" : "+D"(target), "+c"(left) : "a"(8) : "cc", "memory");
        CHECK(target == to + 18);
        SAME(left, 46);
        source = from, target = from;
        from[40] = 1;
        left = 64;
        asm volatile("repe cmpsb\n pushfq\n pop %0"
                     : "=&r"(flags), "+S"(source), "+D"(target), "+c"(left) : : "cc", "memory");
        CHECK(flags & 0x40);
        SAME(left, 0);
        uint64_t *wide = (uint64_t *)to;
        left = 8;
        asm volatile("rep stosq" : "+D"(wide), "+c"(left) : "a"(0x0807060504030201) : "memory");
        CHECK(memcmp(to + 56, "\1\2\3\4\5\6\7\10", 8) == 0);
        source = to;
        uint64_t sum = 0;
        asm volatile("mov $64, %%ecx\n 1: lodsb\n movzx %%al, %%eax\n add %%rax, %1\n loop 1b"
                     : "+S"(source), "+r"(sum) : : "rax", "rcx", "cc", "memory");
        SAME(sum, 36 * 8);
        /* None at all, and with 32-bit addresses in effect nothing else changes. */
        source = from, target = to, left = 0;
        asm volatile("rep movsq" : "+S"(source), "+D"(target), "+c"(left) : : "memory");
        CHECK(source == from && target == to);
    }
    uint8_t letter = 3;
    static const uint8_t table[256] = {9, 8, 7, 6};
    asm volatile("xlatb" : "+a"(letter) : "b"(table) : "memory");
    SAME(letter, 6);
}
