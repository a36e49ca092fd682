/* Signals that come at any time: what their handlers see of the code that they interrupt, and what
 * becomes of that code when they change it. AMOUNT is how many signals each thread gets. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/ucontext.h>
#include <sys/wait.h>
#include <time.h>

static volatile int handled;

static void install(int number, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART | flags};
    CHECK(sigaction(number, &action, NULL) == 0);
}
static void ticks(long microseconds) {
    struct itimerval often = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &often, NULL);
}

/* --- a loop that waits, with known registers --- */

extern const char waiting_from[], waiting_to[], waiting_over[];
static volatile uint64_t waiting_flag __attribute__((used));

/* All registers but rax, which counts, hold their number and a pattern; returns what they add up to. */
ASSEMBLY static uint64_t waiting(void) {
    asm("push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "movabs $0x1122334455660000, %rax\n"
        "lea 1(%rax), %rbx\n lea 2(%rax), %rcx\n lea 3(%rax), %rdx\n lea 4(%rax), %rsi\n"
        "lea 5(%rax), %rdi\n lea 6(%rax), %rbp\n lea 8(%rax), %r8\n lea 9(%rax), %r9\n"
        "lea 10(%rax), %r10\n lea 11(%rax), %r11\n lea 12(%rax), %r12\n lea 13(%rax), %r13\n"
        "lea 14(%rax), %r14\n lea 15(%rax), %r15\n"
        "movq %rbx, %xmm0\n movq %r15, %xmm15\n"
        "xor %eax, %eax\n"
        "waiting_from:\n"
        "1: inc %rax\n"
        "cmpq $0, waiting_flag(%rip)\n"
        "je 1b\n"
        "waiting_to:\n"
        "xor %eax, %eax\n"
        "waiting_over:\n"
        "add %rbx, %rax\n add %rcx, %rax\n add %rdx, %rax\n add %rsi, %rax\n add %rdi, %rax\n"
        "add %rbp, %rax\n add %r8, %rax\n add %r9, %rax\n add %r10, %rax\n add %r11, %rax\n"
        "add %r12, %rax\n add %r13, %rax\n add %r14, %rax\n add %r15, %rax\n"
        "movq %xmm0, %rcx\n add %rcx, %rax\n movq %xmm15, %rcx\n add %rcx, %rax\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
        "ret");
}
#define PATTERN 0x1122334455660000ul
static const int order[] = {REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, -1,      REG_R8,
                            REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
static const uint64_t waited = PATTERN * 16 + 1 + 2 + 3 + 4 + 5 + 6 + 8 + 9 + 10 + 11 + 12 + 13 + 14 + 15 + 1 + 15;

static int is_waiting(const ucontext_t *user) {
    uint64_t rip = (uint64_t)user->uc_mcontext.gregs[REG_RIP];
    return rip >= (uint64_t)waiting_from && rip <= (uint64_t)waiting_to;
}
static void check_waiting(const ucontext_t *user) {
    for (int i = 0; i < 15; i++)
        if (order[i] >= 0) SAME(user->uc_mcontext.gregs[order[i]], PATTERN + (uint64_t)i + 1);
    uint64_t low;
    memcpy(&low, &user->uc_mcontext.fpregs->_xmm[0], 8);
    SAME(low, PATTERN + 1);
    memcpy(&low, &user->uc_mcontext.fpregs->_xmm[15], 8);
    SAME(low, PATTERN + 15);
    SAME(user->uc_mcontext.gregs[REG_RSP] % 16, 8); /* a return address and six registers */
    SAME((uint64_t)user->uc_mcontext.gregs[REG_CSGSFS] & 0xffff, 0x33);
}

static void read_context(int number, siginfo_t *given, void *context) {
    (void)number, (void)given;
    if (!is_waiting(context)) return;
    check_waiting(context);
    if (++handled % 3 == 0) waiting_flag = 1;
}
CASE(context_read) {
    install(SIGALRM, read_context, 0);
    ticks(300);
    for (long i = 0; i < or_else(amount, 100); i++) {
        waiting_flag = 0;
        SAME(waiting(), waited);
    }
    ticks(0);
}

/* The handler ends the wait by itself, and leaves something in every register. */
static void change_context(int number, siginfo_t *given, void *context) {
    (void)number, (void)given;
    ucontext_t *user = context;
    if (!is_waiting(user)) return;
    check_waiting(user);
    for (int i = 0; i < 15; i++)
        if (order[i] >= 0) user->uc_mcontext.gregs[order[i]] = i + 1;
    user->uc_mcontext.gregs[REG_RAX] = 1000;
    uint64_t low = 5000;
    memcpy(&user->uc_mcontext.fpregs->_xmm[0], &low, 8);
    user->uc_mcontext.gregs[REG_RIP] = (greg_t)waiting_over;
    handled++;
}
CASE(context_changed) {
    install(SIGALRM, change_context, 0);
    ticks(300);
    long rounds = or_else(amount, 100);
    waiting_flag = 0;
    for (long i = 0; i < rounds; i++)
        SAME(waiting(), 1000 + 1 + 2 + 3 + 4 + 5 + 6 + 8 + 9 + 10 + 11 + 12 + 13 + 14 + 15 + 5000 + PATTERN + 15);
    ticks(0);
    SAME(handled, rounds);
}

/* Where to go on is a function of its own, as those who switch threads by signals do it. */
static void elsewhere(void) {
    handled++;
    waiting_flag = 1;
}
ASSEMBLY static void elsewhere_entry(void) {
    asm("push %rax\n" /* the address that was interrupted is on the stack already */
        "pushfq\n"
        "push %rcx\n push %rdx\n push %rsi\n push %rdi\n push %r8\n push %r9\n push %r10\n push %r11\n push %rbp\n"
        "mov %rsp, %rbp\n"
        "sub $512, %rsp\n"
        "and $-64, %rsp\n"
        "fxsave64 (%rsp)\n"
        "cld\n"
        "call *elsewhere_pointer(%rip)\n"
        "fxrstor64 (%rsp)\n"
        "mov %rbp, %rsp\n"
        "pop %rbp\n pop %r11\n pop %r10\n pop %r9\n pop %r8\n pop %rdi\n pop %rsi\n pop %rdx\n pop %rcx\n"
        "popfq\n"
        "pop %rax\n"
        "ret $128\n"); /* and the red zone */
}
void (*elsewhere_pointer)(void) __attribute__((used)) = elsewhere;
static void preempt(int number, siginfo_t *given, void *context) {
    (void)number, (void)given;
    ucontext_t *user = context;
    if (!is_waiting(user) || waiting_flag) return;
    user->uc_mcontext.gregs[REG_RSP] -= 128 + 8;
    *(uint64_t *)user->uc_mcontext.gregs[REG_RSP] = (uint64_t)user->uc_mcontext.gregs[REG_RIP];
    user->uc_mcontext.gregs[REG_RIP] = (greg_t)elsewhere_entry;
}
CASE(preempted) {
    install(SIGALRM, preempt, 0);
    ticks(300);
    long rounds = or_else(amount, 100);
    for (long i = 0; i < rounds; i++) {
        waiting_flag = 0;
        SAME(waiting(), waited);
    }
    ticks(0);
    SAME(handled, rounds);
}

static sigjmp_buf place;
static void leave(int number, siginfo_t *given, void *context) {
    (void)number, (void)given;
    if (is_waiting(context)) siglongjmp(place, 1);
}
CASE(left_by_siglongjmp) {
    install(SIGALRM, leave, 0);
    ticks(300);
    volatile long left = 0;
    while (left < or_else(amount, 100))
        if (sigsetjmp(place, 1) == 0) {
            waiting_flag = 0;
            waiting();
            wrong("the wait is over");
        } else
            left++;
    ticks(0);
    printf("%d\n", left >= 100);
}

/* --- vectors, modes and what is below the stack --- */

static volatile uint64_t carrying_flag __attribute__((used));
#define LOAD(n) "vmovdqu64 " #n "*64(%rdi), %zmm" #n "\n"
#define STORE(n) "vmovdqu64 %zmm" #n ", " #n "*64(%rsi)\n"
#define LOAD_XMM(n) "movdqu " #n "*64(%rdi), %xmm" #n "\n"
#define STORE_XMM(n) "movdqu %xmm" #n ", " #n "*64(%rsi)\n"
#define CLEAR(n) "vpxorq %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n"
#define CLEAR_XMM(n) "pxor %%xmm" #n ", %%xmm" #n "\n"
#define SIXTEEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define THE_OTHERS(X) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
ASSEMBLY static void carry_zmm(const void *from __attribute__((unused)), void *to __attribute__((unused))) {
    asm(SIXTEEN(LOAD) THE_OTHERS(LOAD) "kmovq (%rdi), %k3\n fninit\n fldpi\n"
        "1: cmpq $0, carrying_flag(%rip)\n je 1b\n"
        SIXTEEN(STORE) THE_OTHERS(STORE) "kmovq %k3, 2048(%rsi)\n fstpl 2056(%rsi)\n ret");
}
ASSEMBLY static void carry_xmm(const void *from __attribute__((unused)), void *to __attribute__((unused))) {
    asm(SIXTEEN(LOAD_XMM) "fninit\n fldpi\n"
        "1: cmpq $0, carrying_flag(%rip)\n je 1b\n"
        SIXTEEN(STORE_XMM) "fstpl 2056(%rsi)\n ret");
}
static void clear_vectors(int number, siginfo_t *given, void *context) {
    (void)number, (void)given, (void)context;
    if (__builtin_cpu_supports("avx512bw"))
        asm volatile(SIXTEEN(CLEAR) THE_OTHERS(CLEAR) "kxorq %%k3, %%k3, %%k3" : : : "memory");
    else
        asm volatile(SIXTEEN(CLEAR_XMM) : : : "memory");
    asm volatile("fninit\n fld1\n fld1");
    asm volatile("fninit");
    if (++handled % 2 == 0) carrying_flag = 1;
}
CASE(vectors_kept) {
    install(SIGALRM, clear_vectors, 0);
    static uint8_t from[2048], to[2048 + 16];
    int wide = __builtin_cpu_supports("avx512bw");
    ticks(300);
    for (long i = 0; i < or_else(amount, 100); i++) {
        for (size_t j = 0; j < sizeof from; j++) from[j] = (uint8_t)(j * 31 + (size_t)i);
        carrying_flag = 0;
        (wide ? carry_zmm : carry_xmm)(from, to);
        for (int j = 0; j < (wide ? 32 : 16); j++)
            if (memcmp(from + j * 64, to + j * 64, wide ? 64 : 16)) wrong("vector %d changed", j);
        if (wide) CHECK(memcmp(from, to + 2048, 8) == 0);
        double pi;
        memcpy(&pi, to + 2056, 8);
        CHECK(pi > 3.14159 && pi < 3.14160);
    }
    ticks(0);
}

/* Handlers begin with the usual modes; what was interrupted gets its own back. */
static void look_at_modes(int number, siginfo_t *given, void *context) {
    (void)number, (void)given, (void)context;
    uint64_t flags;
    unsigned csr;
    uint16_t control;
    asm volatile("pushfq\n pop %0\n stmxcsr %1\n fnstcw %2" : "=r"(flags), "=m"(csr), "=m"(control));
    CHECK(!(flags & 0x400));
    SAME(csr, 0x1f80);
    SAME(control, 0x37f);
    if (++handled % 2 == 0) carrying_flag = 1;
}
CASE(modes_in_handlers) {
    install(SIGALRM, look_at_modes, 0);
    unsigned csr = 0xffa0, usual = 0x1f80, after;
    uint16_t control = 0xf7f, control_after;
    ticks(300);
    for (int i = 0; i < 100; i++) {
        uint64_t flags;
        carrying_flag = 0;
        asm volatile("ldmxcsr %3\n fldcw %4\n std\n"
                     "1: cmpq $0, carrying_flag(%%rip)\n je 1b\n"
                     "pushfq\n pop %0\n cld\n stmxcsr %1\n fnstcw %2\n ldmxcsr %5\n fninit"
                     : "=&r"(flags), "=m"(after), "=m"(control_after)
                     : "m"(csr), "m"(control), "m"(usual)
                     : "cc", "memory");
        CHECK(flags & 0x400);
        SAME(after, csr);
        SAME(control_after, control);
    }
    ticks(0);
}

/* What is below the stack, on a stack that is not aligned. */
static void disturb(int number, siginfo_t *given, void *context) {
    (void)number, (void)given, (void)context;
    volatile char room[2000];
    CHECK((uint64_t)__builtin_frame_address(0) % 16 == 0);
    memset((char *)room, 0x5a, sizeof room);
    if (++handled % 2 == 0) carrying_flag = 1;
}
ASSEMBLY static uint64_t below(long by __attribute__((unused))) {
    asm("mov %rsp, %rdx\n sub %rdi, %rsp\n"
        "mov $16, %ecx\n"
        "1: neg %rcx\n mov %rcx, (%rsp, %rcx, 8)\n neg %rcx\n loop 1b\n"
        "2: cmpq $0, carrying_flag(%rip)\n je 2b\n"
        "xor %eax, %eax\n mov $16, %ecx\n"
        "3: neg %rcx\n sub (%rsp, %rcx, 8), %rax\n neg %rcx\n loop 3b\n"
        "mov %rdx, %rsp\n ret");
}
CASE(below_the_stack) {
    install(SIGALRM, disturb, 0);
    ticks(300);
    for (long by = 0; by < 100; by++) {
        carrying_flag = 0;
        SAME(below(by), 136);
    }
    ticks(0);
}

/* --- interrupted system calls --- */

/* A read that is interrupted goes on behind the instruction, with the error in rax; one that is to be
 * restarted goes on at it, with the number of the call in rax. */
extern const char reading_at[], reading_after[];
static volatile int is_restarted, seen_reading;
static int ends[2];
static void look_at_read(int number, siginfo_t *given, void *context) {
    (void)number, (void)given;
    const greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (registers[REG_RIP] < (greg_t)reading_at || registers[REG_RIP] > (greg_t)reading_after || seen_reading) return;
    if (is_restarted && registers[REG_RIP] == (greg_t)reading_at && registers[REG_RAX] == SYS_read) {
        /* Also when it has not been called yet. */
        CHECK(registers[REG_RDI] == ends[0] && registers[REG_RDX] == 1);
        if (++handled % 5 == 0) {
            seen_reading = 1;
            CHECK(write(ends[1], "x", 1) == 1);
        }
    }
    if (!is_restarted && registers[REG_RIP] == (greg_t)reading_after) {
        SAME(registers[REG_RAX], -EINTR);
        SAME(registers[REG_RCX], (uint64_t)reading_after);
        seen_reading = 1;
        handled++;
    }
}
ASSEMBLY static long reading(long descriptor __attribute__((unused)), void *to __attribute__((unused)),
                             long size __attribute__((unused))) {
    asm("xor %eax, %eax\n reading_at: syscall\n reading_after: ret");
}
CASE(interrupted_calls) {
    CHECK(pipe(ends) == 0);
    char letter;
    struct sigaction action = {.sa_sigaction = look_at_read, .sa_flags = SA_SIGINFO};
    sigaction(SIGALRM, &action, NULL);
    ticks(1000);
    for (int i = 0; i < 20; i++) {
        seen_reading = 0;
        SAME(reading(ends[0], &letter, 1), -EINTR);
    }
    is_restarted = 1;
    handled = 0;
    action.sa_flags |= SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < 10; i++) {
        seen_reading = 0;
        SAME(reading(ends[0], &letter, 1), 1);
    }
    ticks(0);
    printf("%d\n", handled);
}

/* --- every kind of instruction --- */

/* r12 counts the steps; the addresses behind each counting instruction are in a table, so that r12 can be
 * told from where the signal came. What is between two of them is what is tried. */
extern const char steps_from[], steps_to[], steps_helper[], steps_helper_end[];
extern const uint32_t step_table[], step_table_end[];
static uint64_t steps_memory[64] __attribute__((used, aligned(64)));
static void *steps_pointer __attribute__((used)) = (void *)steps_helper;

ASSEMBLY static uint64_t steps(long rounds __attribute__((unused))) {
    asm(".macro STEP\n"
        "inc %r12\n"
        "66:\n"
        ".pushsection .rodata\n .long 66b - steps_from\n .popsection\n"
        ".endm\n"
        ".pushsection .rodata\n .balign 8\n step_table:\n .popsection\n"
        "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rdi, %r13\n"
        "lea steps_memory(%rip), %r14\n"
        "xor %r15d, %r15d\n"
        "fninit\n"
        "steps_again: xor %r12d, %r12d\n"
        "steps_from:\n"
        "STEP\n nop\n STEP\n push %rax\n STEP\n pop %rax\n STEP\n pushfq\n STEP\n popfq\n"
        "STEP\n call steps_helper\n STEP\n call *steps_pointer(%rip)\n"
        "STEP\n lea steps_helper(%rip), %rax\n STEP\n call *%rax\n"
        "STEP\n lea 1f(%rip), %rax\n STEP\n jmp *%rax\n 1: STEP\n jmp 1f\n nop\n 1: STEP\n"
        "lea 1f(%rip), %rax\n STEP\n push %rax\n STEP\n ret\n 1: STEP\n"
        "mov $39, %eax\n STEP\n syscall\n STEP\n"
        "mov $3, %ecx\n STEP\n 1: loop 1b\n STEP\n jrcxz 1f\n nop\n 1: STEP\n"
        "mov %r14, %rsi\n STEP\n lea 64(%r14), %rdi\n STEP\n mov $64, %ecx\n STEP\n rep movsb\n STEP\n"
        "mov %r14, %rdi\n STEP\n mov $32, %ecx\n STEP\n rep stosq\n STEP\n"
        "lock incq (%r14)\n STEP\n lock xadd %rax, 8(%r14)\n STEP\n xchg %rax, 16(%r14)\n STEP\n"
        "mov steps_memory(%rip), %rax\n STEP\n incq steps_memory(%rip)\n STEP\n pushq steps_memory(%rip)\n STEP\n"
        "popq steps_memory(%rip)\n STEP\n xchg %rax, steps_memory(%rip)\n STEP\n"
        "xor %edx, %edx\n STEP\n mov $17, %eax\n STEP\n mov $5, %ecx\n STEP\n div %ecx\n STEP\n mul %rcx\n STEP\n"
        "fld1\n STEP\n fldpi\n STEP\n fmulp\n STEP\n fstpl 24(%r14)\n STEP\n"
        "movaps (%r14), %xmm1\n STEP\n addpd %xmm1, %xmm1\n STEP\n movaps %xmm1, 32(%r14)\n STEP\n"
        "cmp %rax, %rcx\n STEP\n ja 1f\n nop\n 1: STEP\n enter $16, $0\n STEP\n leave\n STEP\n"
        "cpuid\n STEP\n rdtsc\n STEP\n lahf\n STEP\n sahf\n STEP\n bswap %rax\n STEP\n"
        "cmpxchg %rax, 40(%r14)\n STEP\n"
        "steps_to:\n"
        "add %r12, %r15\n"
        "dec %r13\n"
        "jnz steps_again\n"
        "mov %r15, %rax\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
        "ret\n"
        "steps_helper: nop\n ret\n steps_helper_end:\n"
        ".pushsection .rodata\n step_table_end:\n .popsection");
}

static atomic_long inside;
/* Whether it was the steps that were interrupted; if so they are checked. */
static int check_steps(const ucontext_t *user) {
    uint64_t rip = (uint64_t)user->uc_mcontext.gregs[REG_RIP];
    if (rip >= (uint64_t)steps_helper && rip < (uint64_t)steps_helper_end)
        rip = *(uint64_t *)user->uc_mcontext.gregs[REG_RSP];
    if (rip < (uint64_t)steps_from || rip > (uint64_t)steps_to) return 0;
    uint64_t expected = 0;
    for (const uint32_t *one = step_table; one < step_table_end; one++) expected += (uint64_t)steps_from + *one <= rip;
    if ((uint64_t)user->uc_mcontext.gregs[REG_R12] != expected)
        wrong("at %#lx of the steps r12 is %lld, not %lu", rip - (uint64_t)steps_from,
              user->uc_mcontext.gregs[REG_R12], expected);
    SAME(user->uc_mcontext.gregs[REG_R14], (uint64_t)steps_memory);
    inside++;
    return 1;
}
static atomic_long came;
static void read_steps(int number, siginfo_t *given, void *context) {
    (void)number, (void)given;
    check_steps(context);
    came++;
}
/* As before, and changed to what it was, or to something that nobody reads. */
static void change_steps(int number, siginfo_t *given, void *context) {
    (void)number, (void)given;
    ucontext_t *user = context;
    if (!check_steps(user)) return;
    user->uc_mcontext.gregs[REG_RBX] = came++;
    user->uc_mcontext.gregs[REG_R10] = 5;
    user->uc_mcontext.gregs[REG_R8] = user->uc_mcontext.gregs[REG_R9] = 17;
}
static void try_steps(void (*handler)(int, siginfo_t *, void *), long amount) {
    install(SIGALRM, handler, 0);
    ticks(100);
    uint64_t once = steps(1);
    while (inside < or_else(amount, 500)) SAME(steps(1000), once * 1000);
    ticks(0);
    printf("%lu\n", (unsigned long)once);
}
CASE(every_instruction_read) { try_steps(read_steps, amount); }
CASE(every_instruction_changed) { try_steps(change_steps, amount); }

/* --- storms --- */

static atomic_int stopped;
static atomic_long in_threads;
static void in_thread(int number, siginfo_t *given, void *context) {
    SAME(number, given->si_signo);
    check_steps(context);
    in_threads++;
}
APART static uint64_t mixed(uint64_t seed) {
    for (int i = 0; i < 100; i++) seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return seed;
}
static void *works(void *seed) {
    uint64_t expected = mixed((uint64_t)seed), once = steps(1), rounds = 0;
    while (!stopped) {
        SAME(mixed((uint64_t)seed), expected);
        SAME(steps(20), once * 20);
        if (++rounds % 64 == 0) {
            void *memory = malloc(100 + rounds % 5000);
            memset(memory, 1, 100);
            free(memory);
            sched_yield();
        }
    }
    return NULL;
}
/* Two threads send to sixteen as fast as they can; each gets all that were sent. */
static long sent_each;
static pthread_t targets[16];
static void *sends(void *unused) {
    (void)unused;
    for (long i = 0; i < sent_each; i++)
        for (int j = 0; j < 16; j++)
            for (;;) {
                int error = pthread_sigqueue(targets[j], SIGRTMIN, (union sigval){.sival_int = (int)i});
                if (error == 0) break;
                SAME(error, EAGAIN); /* as many wait as may */
                sched_yield();
            }
    return NULL;
}
CASE(storm) {
    install(SIGRTMIN, in_thread, 0);
    sent_each = or_else(amount, 500);
    for (long i = 0; i < 16; i++) CHECK(pthread_create(&targets[i], NULL, works, (void *)(i + 1)) == 0);
    pthread_t senders[2];
    for (int i = 0; i < 2; i++) pthread_create(&senders[i], NULL, sends, NULL);
    for (int i = 0; i < 2; i++) pthread_join(senders[i], NULL);
    while (in_threads < sent_each * 32) sched_yield();
    stopped = 1;
    for (int i = 0; i < 16; i++) pthread_join(targets[i], NULL);
    SAME(in_threads, sent_each * 32);
}
/* A timer for each thread: those that run get 25,000 signals per second each, those that wait one. */
static void *works_with_timer(void *seed) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event._sigev_un._tid = gettid();
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec often = {{0, 40000}, {0, 40000}};
    CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    works(seed);
    timer_delete(timer);
    return NULL;
}
CASE(timer_storm) {
    install(SIGUSR1, in_thread, SA_ONSTACK);
    for (long i = 0; i < 16; i++) CHECK(pthread_create(&targets[i], NULL, works_with_timer, (void *)(i + 1)) == 0);
    while (in_threads < or_else(amount, 20000)) sched_yield();
    stopped = 1;
    for (int i = 0; i < 16; i++) pthread_join(targets[i], NULL);
}

/* Signals in signals: three kinds that interrupt each other, each on what stack there is. */
static void three(int number, siginfo_t *given, void *context) {
    (void)given, (void)context;
    static _Thread_local int depth;
    CHECK(++depth < 50);
    uint64_t once = steps(3);
    SAME(steps(1) * 3, once);
    handled++;
    if (depth < 3 && number == SIGALRM) raise(SIGUSR2);
    depth--;
}
CASE(nested) {
    install(SIGALRM, three, 0);
    install(SIGUSR1, three, 0);
    install(SIGUSR2, three, 0);
    ticks(200);
    for (int i = 0; handled < or_else(amount, 500); i++) {
        if (i % 4 == 0) raise(SIGUSR1);
        steps(10);
    }
    ticks(0);
}

/* Backwards through system calls: whoever is interrupted on the way back has the program's flags already. */
static void counted(int number, siginfo_t *given, void *context) {
    (void)number, (void)given, (void)context;
    handled++;
}
CASE(backwards) {
    install(SIGALRM, counted, 0);
    ticks(50);
    while (handled < or_else(amount, 5000)) {
        long result = SYS_getppid;
        asm volatile("std\n syscall\n cld" : "+a"(result) : : "rcx", "r11", "memory", "cc");
        SAME(result, getppid());
    }
    ticks(0);
}

/* Signals while memory is mapped, code is made and threads come and go: the agent's busy hours. */
static void *brief(void *unused) { return unused; }
CASE(busy) {
    install(SIGALRM, read_steps, 0);
    ticks(100);
    static const uint8_t code[] = {0xb8, 1, 0, 0, 0, 0xc3};
    for (long i = 0; i < or_else(amount, 200); i++) {
        uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int j = 0; j < 20; j++) {
            memcpy(page + j * 64, code, sizeof code);
            page[j * 64 + 1] = (uint8_t)j;
            SAME(((int (*)(void))(page + j * 64))(), j);
        }
        munmap(page, 4096);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, brief, NULL) == 0);
        pthread_join(thread, NULL);
        steps(5);
    }
    ticks(0);
}

/* Signals that come together, of which an engine may need some itself: each that is sent is handled once, and
 * the mask stays what it was. Faults are not the only way to get them. */
#define TOGETHER 3
static const int together[TOGETHER] = {SIGUSR1, SIGSEGV, SIGBUS};
static atomic_long *arrived; /* shared with the sender */
static uint64_t mask_of(const sigset_t *set) {
    uint64_t mask;
    memcpy(&mask, set, sizeof mask);
    return mask;
}
static void arrives(int number, siginfo_t *given, void *context) {
    /* What it has interrupted may be a handler. Not its own, natively; but SIGSEGV cannot be blocked in a clone. */
    uint64_t others = 0;
    for (int i = 0; i < TOGETHER; i++) others |= 1ul << (together[i] - 1);
    SAME(given->si_signo, number);
    SAME(given->si_code, SI_USER);
    SAME(mask_of(&((ucontext_t *)context)->uc_sigmask) & ~others, 0);
    for (int i = 0; i < TOGETHER; i++)
        if (together[i] == number) arrived[i]++;
}
static void send_together(pid_t to, long rounds) {
    for (long round = 1; round <= rounds; round++) {
        for (int i = 0; i < TOGETHER; i++) kill(to, together[(round + i) % TOGETHER]);
        time_t until = time(NULL) + 10;
        for (int i = 0; i < TOGETHER; i++)
            while (arrived[i] < round) {
                if (time(NULL) > until)
                    wrong("signal %d was handled %ld times, and sent %ld times", together[i], (long)arrived[i], round);
                sched_yield();
            }
    }
}
CASE(sent_together) {
    arrived = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(arrived != MAP_FAILED);
    for (int i = 0; i < TOGETHER; i++) install(together[i], arrives, 0);
    long rounds = or_else(amount, 2000);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        send_together(parent, rounds);
        _exit(0);
    }
    sigset_t mask;
    int status, is_over = 0;
    while (!is_over) {
        for (int i = 0; i < 50; i++) getppid();
        CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0);
        SAME(mask_of(&mask), 0);
        is_over = waitpid(child, &status, WNOHANG) == child;
    }
    SAME(status, 0);
    for (int i = 0; i < TOGETHER; i++) SAME(arrived[i], rounds);
}
