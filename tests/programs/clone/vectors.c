/* Vectors, the coprocessor and their modes; segments; and what the processor says of itself. */
#define _GNU_SOURCE
#include "check.h"
#include <asm/prctl.h>
#include <cpuid.h>
#include <linux/rseq.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <x86intrin.h>

/* What the kernel looks for before the code that a sequence is aborted to. Another one makes a program without sequences
 * of this. */
#ifndef SIGNATURE
#define SIGNATURE "0x53053053"
#endif

/* Everything that code can do on its way, first when nobody has translated it, then often. */
#define TRAVEL                                                                                      \
    "1: call 2f\n"                                                                                  \
    "lea 2f(%rip), %rax\n"                                                                          \
    "call *%rax\n"                                                                                  \
    "lea 3f(%rip), %rax\n"                                                                          \
    "jmp *%rax\n"                                                                                   \
    "2: ret\n"                                                                                      \
    "3: mov $39, %eax\n"                                                                            \
    "mov %rdx, %r9\n"                                                                               \
    "syscall\n"                                                                                     \
    "dec %r9\n"                                                                                     \
    "mov %r9, %rdx\n"                                                                               \
    "jnz 1b\n"

#define LOAD(n) "vmovdqu64 " #n "*64(%rdi), %zmm" #n "\n"
#define STORE(n) "vmovdqu64 %zmm" #n ", " #n "*64(%rsi)\n"
#define LOAD_YMM(n) "vmovdqu " #n "*64(%rdi), %ymm" #n "\n"
#define STORE_YMM(n) "vmovdqu %ymm" #n ", " #n "*64(%rsi)\n"
#define LOAD_XMM(n) "movdqu " #n "*64(%rdi), %xmm" #n "\n"
#define STORE_XMM(n) "movdqu %xmm" #n ", " #n "*64(%rsi)\n"
#define LOAD_MASK(n) "kmovq 2048 + " #n "*8(%rdi), %k" #n "\n"
#define STORE_MASK(n) "kmovq %k" #n ", 2048 + " #n "*8(%rsi)\n"
#define EIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define SIXTEEN(X) EIGHT(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define THIRTY_TWO(X)                                                                               \
    SIXTEEN(X) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)

/* A signal that comes while a system call is made. */
static int own_tid __attribute__((used));
#define SIGNAL                                                                                      \
    "push %rdi\n push %rsi\n"                                                                       \
    "mov own_tid(%rip), %edi\n mov $10, %esi\n mov $200, %eax\n"                                    \
    "syscall\n"                                                                                     \
    "pop %rsi\n pop %rdi\n"

#define CARRIER(name, load, way, store)                                                             \
    ASSEMBLY static void name(const void *from __attribute__((unused)), void *to __attribute__((unused)), \
                              long rounds __attribute__((unused))) {                                \
        asm(load way store "ret");                                                                  \
    }
CARRIER(carry_zmm, THIRTY_TWO(LOAD) EIGHT(LOAD_MASK), TRAVEL, THIRTY_TWO(STORE) EIGHT(STORE_MASK))
CARRIER(carry_ymm, SIXTEEN(LOAD_YMM), TRAVEL, SIXTEEN(STORE_YMM))
CARRIER(carry_xmm, SIXTEEN(LOAD_XMM), TRAVEL, SIXTEEN(STORE_XMM))
CARRIER(signal_zmm, THIRTY_TWO(LOAD) EIGHT(LOAD_MASK), SIGNAL, THIRTY_TWO(STORE) EIGHT(STORE_MASK))
CARRIER(signal_ymm, SIXTEEN(LOAD_YMM), SIGNAL, SIXTEEN(STORE_YMM))

static void carried(void (*carry)(const void *, void *, long), int registers, size_t size, size_t masks) {
    static uint8_t from[2048 + 64], to[2048 + 64];
    for (long rounds = 1; rounds <= 1000; rounds *= 10) {
        for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)(i * 37 + (size_t)rounds), to[i] = 0;
        carry(from, to, rounds);
        for (int i = 0; i < registers; i++)
            if (memcmp(from + i * 64, to + i * 64, size)) wrong("vector %d changed", i);
        if (memcmp(from + 2048, to + 2048, masks)) wrong("a mask changed");
    }
}
CASE(xmm) { carried(carry_xmm, 16, 16, 0); }
CASE(ymm) {
    if (__builtin_cpu_supports("avx")) carried(carry_ymm, 16, 32, 0);
}
CASE(zmm) {
    if (__builtin_cpu_supports("avx512bw")) carried(carry_zmm, 32, 64, 64);
}

static volatile int signals;
static void on_signal(int number) { signals += number == SIGUSR1; }
CASE(past_signals) {
    signal(SIGUSR1, on_signal);
    own_tid = (int)syscall(SYS_gettid);
    if (__builtin_cpu_supports("avx")) carried(signal_ymm, 16, 32, 0);
    if (__builtin_cpu_supports("avx512bw")) carried(signal_zmm, 32, 64, 64);
    printf("%d\n", signals);
}

/* A stack that is deep, with the old vectors in it. */
ASSEMBLY static double coprocessor(const void *unused_from __attribute__((unused)), void *to __attribute__((unused)),
                                   long rounds __attribute__((unused))) {
    asm("fninit\n fld1\n fldpi\n fldl2e\n fldlg2\n fldln2\n fldl2t\n fld1\n"
        TRAVEL
        "fstpl (%rsi)\n fstpl 8(%rsi)\n fstpl 16(%rsi)\n fstpl 24(%rsi)\n"
        "fstpl 32(%rsi)\n fstpl 40(%rsi)\n fstpl 48(%rsi)\n"
        "ret");
}
ASSEMBLY static void old_vectors(const void *from __attribute__((unused)), void *to __attribute__((unused)),
                                 long rounds __attribute__((unused))) {
    asm("movq (%rdi), %mm0\n movq 8(%rdi), %mm3\n movq 16(%rdi), %mm7\n"
        TRAVEL
        "movq %mm0, (%rsi)\n movq %mm3, 8(%rsi)\n movq %mm7, 16(%rsi)\n"
        "emms\n"
        "ret");
}
CASE(x87) {
    double out[7];
    for (long rounds = 1; rounds <= 1000; rounds *= 10) {
        coprocessor(NULL, out, rounds);
        printf("%.15g %.15g %.15g %.15g %.15g %.15g %.15g\n", out[0], out[1], out[2], out[3], out[4], out[5], out[6]);
        uint64_t from[3] = {0x1122334455667788, 0x99aabbccddeeff00, 0x123456789}, to[3] = {0};
        old_vectors(from, to, rounds);
        CHECK(memcmp(from, to, sizeof from) == 0);
    }
}
/* Where the last instruction of the coprocessor was is in what is saved of it. */
CASE(x87_addresses) {
    static _Alignas(16) uint8_t area[512];
    static double operand = 2.5;
    uint64_t expected;
    asm volatile("fninit\n lea 1f(%%rip), %0\n 1: fldl %2\n fxsave64 %1\n fstp %%st(0)"
                 : "=&r"(expected), "=m"(area) : "m"(operand));
    uint64_t instruction, data;
    memcpy(&instruction, area + 8, 8);
    memcpy(&data, area + 16, 8);
    /* Some processors keep these only after an exception. */
    printf("%s\n", instruction == 0 ? "not kept" : instruction == expected ? "its own" : "another's");
    CHECK(data == 0 || data == (uint64_t)&operand);
}

/* The other forms in which it is saved, and a signal's frame. */
static uint64_t seen_instruction;
static void on_own_signal(int number, siginfo_t *given, void *context) {
    (void)number, (void)given;
    seen_instruction = ((ucontext_t *)context)->uc_mcontext.fpregs->rip;
}
static const char *whose(uint64_t instruction, uint64_t expected) {
    return instruction == 0 ? "not kept" : instruction == expected ? "its own" : "another's";
}
CASE(x87_addresses_elsewhere) {
    static _Alignas(64) uint8_t area[4096];
    uint64_t expected;
    uint32_t half;
    struct sigaction action = {.sa_sigaction = on_own_signal, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 3; i++) {
        asm volatile("fninit\n lea 1f(%%rip), %0\n 1: fld1\n fnstenv %1\n fstp %%st(0)\n fninit"
                     : "=&r"(expected), "=m"(area));
        memcpy(&half, area + 12, 4);
        puts(whose(half, (uint32_t)expected));
        asm volatile("fninit\n lea 1f(%%rip), %0\n 1: fld1\n fnsave %1\n fninit" : "=&r"(expected), "=m"(area));
        memcpy(&half, area + 12, 4);
        puts(whose(half, (uint32_t)expected));
        asm volatile("fninit\n lea 1f(%%rip), %0\n 1: fld1\n fxsave %1\n fstp %%st(0)" : "=&r"(expected), "=m"(area));
        memcpy(&half, area + 8, 4);
        puts(whose(half, (uint32_t)expected));
        uint64_t whole;
        asm volatile("fninit\n lea 1f(%%rip), %0\n mov $7, %%eax\n xor %%edx, %%edx\n 1: fld1\n xsave64 %1\n fstp %%st(0)"
                     : "=&r"(expected), "=m"(area) : : "rax", "rdx");
        memcpy(&whole, area + 8, 8);
        puts(whose(whole, expected));
        int own_pid = getpid();
        asm volatile("fninit\n lea 1f(%%rip), %0\n mov $10, %%esi\n mov $62, %%eax\n 1: fld1\n syscall\n fstp %%st(0)"
                     : "=&r"(expected) : "D"(own_pid) : "rax", "rcx", "rsi", "r11", "memory");
        puts(whose(seen_instruction, expected));
    }
}

APART static long double rounding(unsigned mode, double expected) {
    unsigned csr = 0x1f80u | mode << 13 | 0x8040u * (mode == 3), read_csr;
    uint16_t control = (uint16_t)(0x37f | mode << 10), read_control;
    volatile double one = 1, three = 3, quotient;
    volatile long double old_one = -1, old_three = 3, old_quotient;
    asm volatile("ldmxcsr %0\n fldcw %1" : : "m"(csr), "m"(control));
    for (int i = 0; i < 50; i++) {
        syscall(SYS_getpid);
        quotient = -one / three;
        old_quotient = old_one / old_three;
        asm volatile("stmxcsr %0\n fnstcw %1" : "=m"(read_csr), "=m"(read_control));
        SAME(read_csr & ~0x3fu, csr & ~0x3fu);
        SAME(read_control, control);
        CHECK(quotient == expected);
    }
    unsigned usual = 0x1f80;
    asm volatile("ldmxcsr %0\n fninit" : : "m"(usual));
    return old_quotient;
}
CASE(rounding) {
    double nearest = -1.0 / 3.0;
    for (unsigned mode = 0; mode < 4; mode++) {
        long double old = rounding(mode, mode == 1 ? nextafter(nearest, -1) : nearest);
        printf("%La\n", old);
    }
}

/* --- segments --- */

static long prctl_arch(int code, void *value) { return syscall(SYS_arch_prctl, code, value); }

CASE(gs) {
    static uint64_t block[8] = {10, 20, 30};
    void *base = NULL;
    CHECK(prctl_arch(ARCH_GET_GS, &base) == 0 && base == NULL);
    CHECK(prctl_arch(ARCH_SET_GS, block) == 0);
    CHECK(prctl_arch(ARCH_GET_GS, &base) == 0 && base == block);
    for (int i = 0; i < 1000; i++) {
        uint64_t sum;
        asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, %%gs:24\n"
                     "mov %%gs:8, %0\n add %%gs:16, %0\n incq %%gs:0\n"
                     "lea -128(%%rsp), %%rsp\n call *%%gs:24\n lea 128(%%rsp), %%rsp\n"
                     "lea 2f(%%rip), %%rax\n mov %%rax, %%gs:32\n jmp *%%gs:32\n"
                     "1: inc %0\n ret\n 2: mov $16, %%eax\n add %%gs:(%%rax), %0\n"
                     "pushq %%gs:8\n pop %%rax\n add %%rax, %0"
                     : "=&r"(sum) : : "rax", "cc", "memory");
        SAME(sum, 20 + 30 + 1 + 30 + 20);
    }
    SAME(block[0], 1010);
    if (getauxval(AT_HWCAP2) & 2) {
        SAME(_readgsbase_u64(), (uint64_t)block);
        _writegsbase_u64((uint64_t)(block + 1));
        uint64_t first;
        asm volatile("mov %%gs:0, %0" : "=r"(first));
        SAME(first, 20);
        CHECK(prctl_arch(ARCH_GET_GS, &base) == 0 && base == block + 1);
    }
    SAME(prctl_arch(ARCH_SET_GS, (void *)0x8000000000000000), -1);
    CHECK(errno == EPERM);
}

/* Addresses that only look like gs's, and such as stand in the instruction; the halves of the base. */
CASE(gs_in_odd_forms) {
    static uint64_t block[8] = {10, 20, 30};
    CHECK(prctl_arch(ARCH_SET_GS, block) == 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t address, value;
        asm volatile(".byte 0x65\n lea 8(%1), %0" : "=r"(address) : "r"(block));
        SAME(address, (uint64_t)(block + 1));
        asm volatile("movabs %%gs:16, %%rax" : "=a"(value));
        SAME(value, 30);
        asm volatile("movabs %%eax, %%gs:24" : : "a"(i) : "memory");
        SAME(block[3], (uint64_t)i);
    }
    if (!(getauxval(AT_HWCAP2) & 2)) return;
    SAME(_readgsbase_u32(), (uint32_t)(uint64_t)block);
    _writegsbase_u32(0x12345678);
    SAME(_readgsbase_u64(), 0x12345678);
}

/* Memory that an instruction names only by the way, many places at once, and branches by all registers. */
CASE(gs_by_others) {
    static uint8_t letters[256];
    static _Alignas(64) uint64_t block[32];
    for (int i = 0; i < 256; i++) letters[i] = (uint8_t)(255 - i);
    for (int i = 0; i < 32; i++) block[i] = (uint64_t)i * 1000 + 7;
    for (int round = 0; round < 200; round++) {
        CHECK(prctl_arch(ARCH_SET_GS, letters) == 0);
        uint64_t value = (uint64_t)(0x1100 | (round & 0x7f));
        asm volatile("mov $64, %%ebx\n .byte 0x65\n xlatb" : "+a"(value) : : "rbx", "memory");
        SAME(value, 0x1100 | (255 - 64 - (round & 0x7f)));
        CHECK(prctl_arch(ARCH_SET_GS, block) == 0);
        uint64_t sum;
        asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, %%gs:240\n"
                     "xor %0, %0\n mov $240, %%eax\n mov $30, %%ecx\n"
                     "lea -128(%%rsp), %%rsp\n"
                     "call *%%gs:(%%rax)\n"
                     "call *%%gs:(,%%rcx,8)\n"
                     "call *%%gs:-240(%%rax,%%rcx,8)\n"
                     "lea 2f(%%rip), %%rdx\n mov %%rdx, %%gs:248\n"
                     "jmp *%%gs:8(,%%rcx,8)\n"
                     "1: inc %0\n ret\n"
                     "2: lea 128(%%rsp), %%rsp\n"
                     "add %%rax, %0\n add %%rcx, %0"
                     : "=&r"(sum) : : "rax", "rcx", "rdx", "cc", "memory");
        SAME(sum, 3 + 240 + 30);
        block[30] = 30007, block[31] = 31007;
        if (__builtin_cpu_supports("avx2")) {
            uint64_t out[4];
            static const int32_t places[4] = {1, 5, 2, 29};
            asm volatile("vmovdqu %1, %%xmm1\n vpcmpeqd %%ymm2, %%ymm2, %%ymm2\n"
                         "mov $8, %%eax\n"
                         "vpgatherdq %%ymm2, %%gs:-8(%%rax,%%xmm1,8), %%ymm0\n vmovdqu %%ymm0, %0"
                         : "=m"(out) : "m"(places) : "rax", "xmm0", "xmm1", "xmm2", "memory");
            for (int i = 0; i < 4; i++) SAME(out[i], block[places[i]]);
            asm volatile("vmovdqu %1, %%xmm1\n vpcmpeqd %%ymm2, %%ymm2, %%ymm2\n"
                         "vpgatherdq %%ymm2, %%gs:8(,%%xmm1,8), %%ymm0\n vmovdqu %%ymm0, %0\n vzeroupper"
                         : "=m"(out) : "m"(places) : "xmm0", "xmm1", "xmm2", "memory");
            for (int i = 0; i < 4; i++) SAME(out[i], block[places[i] + 1]);
        }
    }
}

static void *own_gs(void *number) {
    uint64_t block[4] = {(uint64_t)number}, seen;
    prctl_arch(ARCH_SET_GS, block);
    for (int i = 0; i < 2000; i++) {
        sched_yield();
        asm volatile("mov %%gs:0, %0" : "=r"(seen));
        SAME(seen, number);
    }
    return NULL;
}
CASE(gs_of_threads) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(threads + i, NULL, own_gs, (void *)(i + 100));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

/* Another fs for a while, with nothing of the library in between. */
ASSEMBLY static uint64_t other_fs(void *block __attribute__((unused)), void *own __attribute__((unused))) {
    asm("push %rbx\n"
        "mov %rsi, %rbx\n"
        "mov %rdi, %rsi\n"
        "mov $0x1002, %edi\n"
        "mov $158, %eax\n"
        "syscall\n"
        "mov $100, %ecx\n"
        "xor %edx, %edx\n"
        "1: add %fs:0, %rdx\n"
        "call 2f\n"
        "lea 3f(%rip), %rax\n"
        "jmp *%rax\n"
        "2: ret\n"
        "3: loop 1b\n"
        "push %rdx\n"
        "mov %rbx, %rsi\n"
        "mov $0x1002, %edi\n"
        "mov $158, %eax\n"
        "syscall\n"
        "pop %rax\n"
        "pop %rbx\n"
        "ret");
}
CASE(fs) {
    void *own;
    CHECK(prctl_arch(ARCH_GET_FS, &own) == 0);
    CHECK(own == __builtin_thread_pointer());
    if (getauxval(AT_HWCAP2) & 2) SAME(_readfsbase_u64(), (uint64_t)own);
    static uint64_t block[64] = {3};
    for (int i = 0; i < 100; i++) SAME(other_fs(block, own), 300);
    CHECK(prctl_arch(ARCH_GET_FS, &own) == 0 && own == __builtin_thread_pointer());
}

/* --- restartable sequences --- */

CASE(rseq) {
    CHECK(__rseq_size > 0);
    struct rseq *area = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    cpu_set_t one;
    for (int processor = 0; processor < 2; processor++) {
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0) continue;
        SAME(*(volatile uint32_t *)&area->cpu_id, processor);
        SAME(*(volatile uint32_t *)&area->cpu_id_start, processor);
    }
    /* It is registered: it cannot be again, elsewhere. */
    static _Alignas(32) char another[32];
    SAME(syscall(SYS_rseq, another, 32, 0, 0x53053053), -1);
    printf("%s\n", strerror(errno));
}

static void on_alarm(int number) { (void)number; }

/* A sequence that never ends but by being aborted, which a signal does. */
APART static long endless_sequence(struct rseq *area) {
    long aborted;
    asm volatile(".pushsection __rseq_cs, \"aw\"\n"
                 ".balign 32\n"
                 "4: .long 0, 0\n .quad 1f, 2f - 1f, 3f\n"
                 ".popsection\n"
                 "xor %k0, %k0\n"
                 "lea 4b(%%rip), %%rax\n"
                 "mov %%rax, %1\n"
                 "1: inc %%rcx\n"
                 "jmp 1b\n"
                 "2: ud2\n"
                 ".long " SIGNATURE "\n"
                 "3: mov $1, %k0\n"
                 "movq $0, %1"
                 : "=&r"(aborted), "+m"(area->rseq_cs) : : "rax", "rcx", "cc", "memory");
    return aborted;
}
CASE(rseq_abort) {
    struct rseq *area = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < 20; i++) {
        struct itimerval soon = {{0, 0}, {0, 2000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        SAME(endless_sequence(area), 1);
    }
}

/* Threads on one processor that add to a counter, each addition a sequence with a branch in it: without the
 * kernel's help some would be lost. */
#define THREADS 4
static volatile uint64_t counter;
static uint64_t restarts;
APART static int add_one(struct rseq *area) {
    int aborted = 0;
    asm volatile(".pushsection __rseq_cs, \"aw\"\n"
                 ".balign 32\n"
                 "5: .long 0, 0\n .quad 1f, 2f - 1f, 4f\n"
                 ".popsection\n"
                 "lea 5b(%%rip), %%rax\n"
                 "mov %%rax, %0\n"
                 "1: mov %1, %%rcx\n"
                 "mov $2000, %%eax\n"
                 "3: dec %%eax\n"
                 "jz 7f\n"
                 "jmp 3b\n"
                 "7: inc %%rcx\n"
                 "mov %%rcx, %1\n"
                 "2: jmp 6f\n"
                 ".byte 0x0f, 0xb9, 0x3d\n"
                 ".long " SIGNATURE "\n"
                 "4: movl $1, %2\n"
                 "6:"
                 : "=m"(area->rseq_cs), "+m"(counter), "+m"(aborted) : : "rax", "rcx", "memory", "cc");
    return !aborted;
}
static void *add_many(void *unused) {
    (void)unused;
    struct rseq *area = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    uint64_t restarted = 0;
    for (int made = 0; made < 20000;) {
        if (add_one(area)) made++;
        else restarted++;
    }
    __atomic_add_fetch(&restarts, restarted, __ATOMIC_SEQ_CST);
    return NULL;
}
CASE(rseq_counter) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(threads + i, NULL, add_many, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    SAME(counter, THREADS * 20000);
    CHECK(restarts > 0);
}

/* What a sequence has in its registers when it is aborted; and where a handler is told that it was. The
 * descriptor is known by a pointer, and what is read by gs lies elsewhere in the clone. */
static volatile uint64_t seen_at;
static void on_abort(int number, siginfo_t *given, void *context) {
    (void)number, (void)given;
    seen_at = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
}
ASSEMBLY static void known_sequence(struct rseq *area __attribute__((unused)), uint64_t *out __attribute__((unused))) {
    asm(".pushsection .data\n"
        ".balign 32\n"
        "4: .long 0, 0\n .quad 1f, 2f - 1f, 3f\n"
        "5: .quad 4b\n"
        ".popsection\n"
        "push %rbx\n push %rbp\n push %r12\n"
        "mov 5b(%rip), %rax\n"
        "mov $3, %ebx\n mov $5, %ebp\n mov $9, %r12d\n"
        "xor %ecx, %ecx\n xor %edx, %edx\n"
        "mov %rax, 8(%rdi)\n"
        "1: inc %rcx\n"
        "mov %gs:8, %r8\n"
        "lea (%rcx), %rdx\n"
        "mov %gs:(%rbp,%rbx), %r9\n"
        "jmp 1b\n"
        "2: ud2\n"
        ".long " SIGNATURE "\n"
        "3: mov %rax, (%rsi)\n mov %rcx, 8(%rsi)\n mov %rdx, 16(%rsi)\n mov %rbx, 24(%rsi)\n"
        "mov %rbp, 32(%rsi)\n mov %r12, 40(%rsi)\n mov %rdi, 48(%rsi)\n"
        "mov 5b(%rip), %rax\n mov %rax, 56(%rsi)\n lea 3b(%rip), %rax\n mov %rax, 64(%rsi)\n"
        "pop %r12\n pop %rbp\n pop %rbx\n"
        "ret");
}
CASE(rseq_registers) {
    struct rseq *area = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    struct sigaction action = {.sa_sigaction = on_abort, .sa_flags = SA_SIGINFO};
    sigaction(SIGALRM, &action, NULL);
    static uint64_t block[4] = {1, 2, 3};
    CHECK(prctl_arch(ARCH_SET_GS, block) == 0);
    int handled = 0;
    for (int i = 0; i < 300; i++) {
        uint64_t out[9] = {0};
        struct itimerval soon = {{0, 0}, {0, 300 + i % 50}};
        seen_at = 0;
        setitimer(ITIMER_REAL, &soon, NULL);
        known_sequence(area, out);
        SAME(out[0], out[7]);
        CHECK(out[2] == out[1] || out[2] == out[1] - 1);
        SAME(out[3], 3);
        SAME(out[4], 5);
        SAME(out[5], 9);
        SAME(out[6], (uint64_t)area);
        uint64_t current;
        memcpy(&current, (char *)area + 8, 8);
        SAME(current, 0);
        /* It may have been aborted because another program took its turn. */
        handled += seen_at == out[8];
        while (seen_at == 0) sched_yield();
    }
    CHECK(handled > 0);
}

/* Who is registered, and what is refused. */
static long rseq(void *area, unsigned size, int flags, unsigned signature) {
    return syscall(SYS_rseq, area, size, flags, signature) == 0 ? 0 : errno;
}
static void *registers_anew(void *unused) {
    (void)unused;
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    static __thread _Alignas(32) struct rseq other;
    struct rseq *area = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    /* The library has registered as much as it knows of. */
    unsigned size = 0;
    for (unsigned i = 32; i <= 256 && !size; i += 1)
        if (rseq(area, i, 0, 0x53053053) == EBUSY) size = i;
    CHECK(size);
    SAME(rseq(area, size, 0, 0x12345678), EPERM);
    SAME(rseq(area, size, 2, 0x53053053), EINVAL);
    SAME(rseq(area, size, 1, 0x12345678), EPERM);
    SAME(rseq(area, size, 1, 0x53053053), 0);
    SAME(area->cpu_id, (uint32_t)-1);
    SAME(rseq(area, size, 1, 0x53053053), EINVAL);
    SAME(rseq((char *)&other + 4, 32, 0, 0x12345678), EINVAL);
    SAME(rseq(&other, 16, 0, 0x12345678), EINVAL);
    SAME(rseq((void *)0x8000000000000000, 32, 0, 0x12345678), EFAULT);
    SAME(rseq(&other, 32, 0, 0x12345678), 0);
    CHECK(*(volatile uint32_t *)&other.cpu_id < 4096);
    /* A sequence with that signature. */
    long aborted = 0;
    struct itimerval soon = {{0, 0}, {0, 2000}};
    setitimer(ITIMER_REAL, &soon, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    asm volatile(".pushsection .data\n"
                 ".balign 32\n"
                 "4: .long 0, 0\n .quad 1f, 2f - 1f, 3f\n"
                 ".popsection\n"
                 "lea 4b(%%rip), %%rax\n"
                 "mov %%rax, %1\n"
                 "1: jmp 1b\n"
                 "2: ud2\n"
                 ".long 0x12345678\n"
                 "3: mov $1, %k0"
                 : "+r"(aborted), "+m"(other.rseq_cs) : : "rax", "memory");
    SAME(aborted, 1);
    SAME(rseq(&other, 32, 1, 0x12345678), 0);
    return NULL;
}
CASE(rseq_registered) {
    struct rseq *area = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    pthread_t thread;
    for (int i = 0; i < 10; i++) {
        pthread_create(&thread, NULL, registers_anew, NULL);
        pthread_join(thread, NULL);
    }
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    /* A child has what its parent has. */
    pid_t child = fork();
    if (child == 0) {
        struct itimerval soon = {{0, 0}, {0, 2000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        int is_registered = rseq((char *)area + 32, 32, 0, 0x53053053) == EINVAL;
        _exit(is_registered && endless_sequence(area) == 1 ? 5 : 6);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    SAME(WEXITSTATUS(status), 5);
}

/* --- what the processor says --- */

CASE(cpuid) {
    unsigned a, b, c, d;
    static const unsigned leaves[][2] = {{0, 0},   {1, 0},   {7, 0},          {7, 1},
                                         {0xd, 0}, {0xd, 1}, {0x80000000, 0}, {0x80000001, 0}};
    for (unsigned i = 0; i < sizeof leaves / sizeof *leaves; i++) {
        __cpuid_count(leaves[i][0], leaves[i][1], a, b, c, d);
        if (leaves[i][0] == 1) b &= 0xffffff; /* not which of the processors it is */
        printf("%x/%u: %08x %08x %08x %08x\n", leaves[i][0], leaves[i][1], a, b, c, d);
    }
    asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    printf("xcr0: %x %x\n", d, a);
    unsigned short segments[6];
    asm volatile("mov %%cs, %0\n mov %%ss, %1\n mov %%ds, %2\n mov %%es, %3\n mov %%fs, %4\n mov %%gs, %5"
                 : "=r"(segments[0]), "=r"(segments[1]), "=r"(segments[2]), "=r"(segments[3]), "=r"(segments[4]),
                   "=r"(segments[5]));
    for (int i = 0; i < 6; i++) printf("%x ", segments[i]);
    puts("");
}
CASE(rdtsc) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    uint64_t last = 0;
    for (int i = 0; i < 100000; i++) {
        unsigned processor = 1;
        uint64_t now = i & 1 ? __rdtsc() : __rdtscp(&processor);
        CHECK(now > last);
        if (!(i & 1)) SAME(processor & 0xfff, 0);
        last = now;
    }
}
