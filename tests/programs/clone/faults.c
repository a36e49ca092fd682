/* Faults: which, where, with which registers; and what a handler can make of them. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ucontext.h>
#include <unistd.h>

#define OFTEN 50

static volatile int faults;
static siginfo_t info;
static gregset_t registers;
/* Where the fault is, where to go on, the stack: the code writes them before it faults. */
static uint64_t marks[3];
static uint64_t first_vector;

static void on_fault(int number, siginfo_t *given, void *context) {
    ucontext_t *user = context;
    CHECK(number == given->si_signo);
    info = *given;
    memcpy(registers, user->uc_mcontext.gregs, sizeof registers);
    memcpy(&first_vector, &user->uc_mcontext.fpregs->_xmm[7], 8);
    faults++;
    user->uc_mcontext.gregs[REG_RIP] = (long)marks[1];
    user->uc_mcontext.gregs[REG_RAX] = 4711;
}

/* Runs a piece of code with known registers. In it rdi, rsi and rdx are what was passed. */
#define FAULTING(name, code)                                                                        \
    ASSEMBLY static long name(uint64_t a __attribute__((unused)), uint64_t b __attribute__((unused)), \
                              uint64_t c __attribute__((unused)), uint64_t *at __attribute__((unused))) { \
        asm("push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"               \
            "lea 1f(%rip), %rax\n"                                                                  \
            "mov %rax, (%rcx)\n"                                                                    \
            "lea 2f(%rip), %rax\n"                                                                  \
            "mov %rax, 8(%rcx)\n"                                                                   \
            "mov %rsp, 16(%rcx)\n"                                                                  \
            "mov $8, %r8d\n mov $9, %r9d\n mov $10, %r10d\n mov $11, %r11d\n mov $12, %r12d\n"      \
            "mov $13, %r13d\n mov $14, %r14d\n mov $15, %r15d\n mov $3, %ebx\n mov $5, %ebp\n"      \
            "mov $7, %eax\n movq %rax, %xmm7\n mov $1, %ecx\n stc\n" code                           \
            "2: pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"                  \
            "cld\n"                                                                                 \
            "ret");                                                                                 \
    }
#define FAULT "1: "

static void expect(long (*code)(uint64_t, uint64_t, uint64_t, uint64_t *), uint64_t a, uint64_t b, uint64_t c,
                   int number, int kind, uint64_t address, uint64_t past) {
    int before = faults;
    code(a, b, c, marks);
    CHECK(faults == before + 1);
    if (info.si_signo != number || info.si_code != kind)
        wrong("signal %d code %d, not %d code %d", info.si_signo, info.si_code, number, kind);
    if (number != SIGTRAP) SAME((uint64_t)info.si_addr, address == ~0ul ? marks[0] : address);
    SAME(registers[REG_RIP], marks[0] + past);
    SAME(registers[REG_RSP], marks[2]);
    SAME(registers[REG_RDI], a);
    SAME(registers[REG_RSI], b);
    SAME(registers[REG_R8], 8);
    SAME(registers[REG_R9], 9);
    SAME(registers[REG_R10], 10);
    SAME(registers[REG_R11], 11);
    SAME(registers[REG_R12], 12);
    SAME(registers[REG_R13], 13);
    SAME(registers[REG_R14], 14);
    SAME(registers[REG_R15], 15);
    SAME(registers[REG_RBX], 3);
    SAME(registers[REG_RBP], 5);
    SAME(first_vector, 7);
    CHECK(registers[REG_EFL] & 1);
}

static void catch_all(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    for (int i = 0; i < 5; i++) sigaction(numbers[i], &action, NULL);
}

FAULTING(undefined, FAULT "ud2\n")
FAULTING(undefined_long, "nop\n" FAULT ".byte 0x0f, 0xff, 0xc0\n")
FAULTING(no_instruction, FAULT ".byte 0x06\n")
FAULTING(into, FAULT ".byte 0xce\n")
FAULTING(lock_where_it_cannot_be, FAULT ".byte 0xf0, 0x89, 0xc0\n")
CASE(illegal) {
    catch_all();
    for (int i = 0; i < OFTEN; i++) {
        expect(undefined, 1, 2, 3, SIGILL, ILL_ILLOPN, ~0ul, 0);
        expect(undefined_long, 1, 2, 3, SIGILL, ILL_ILLOPN, ~0ul, 0);
        expect(no_instruction, 1, 2, 3, SIGILL, ILL_ILLOPN, ~0ul, 0);
        expect(into, 1, 2, 3, SIGILL, ILL_ILLOPN, ~0ul, 0);
        expect(lock_where_it_cannot_be, 1, 2, 3, SIGILL, ILL_ILLOPN, ~0ul, 0);
    }
    printf("%d\n", faults);
}

FAULTING(breakpoint, FAULT "int3\n ud2\n")
FAULTING(long_breakpoint, FAULT ".byte 0xcd, 0x03\n ud2\n")
CASE(breakpoints) {
    catch_all();
    for (int i = 0; i < OFTEN; i++) {
        expect(breakpoint, 1, 2, 3, SIGTRAP, SI_KERNEL, 0, 1);
        SAME(registers[REG_TRAPNO], 3);
        expect(long_breakpoint, 1, 2, 3, SIGTRAP, SI_KERNEL, 0, 2);
    }
    printf("%d\n", faults);
}

FAULTING(privileged, FAULT "hlt\n")
FAULTING(port, FAULT "out %al, $0x80\n")
FAULTING(control_register, FAULT "mov %cr0, %rax\n")
FAULTING(interrupt, FAULT "int $0x21\n")
FAULTING(disable, FAULT "cli\n")
FAULTING(too_long, FAULT ".fill 15, 1, 0x66\n nop\n")
CASE(privileged) {
    catch_all();
    for (int i = 0; i < OFTEN; i++) {
        expect(privileged, 1, 2, 3, SIGSEGV, SI_KERNEL, 0, 0);
        expect(port, 1, 2, 3, SIGSEGV, SI_KERNEL, 0, 0);
        expect(control_register, 1, 2, 3, SIGSEGV, SI_KERNEL, 0, 0);
        expect(interrupt, 1, 2, 3, SIGSEGV, SI_KERNEL, 0, 0);
        expect(disable, 1, 2, 3, SIGSEGV, SI_KERNEL, 0, 0);
        expect(too_long, 1, 2, 3, SIGSEGV, SI_KERNEL, 0, 0);
    }
    printf("%d\n", faults);
}
/* The processor's counter, for those whom the kernel denies it. */
FAULTING(reads_counter, FAULT "rdtsc\n")
CASE(no_counter) {
    catch_all();
    CHECK(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
    for (int i = 0; i < OFTEN; i++) expect(reads_counter, 1, 2, 3, SIGSEGV, SI_KERNEL, 0, 0);
    CHECK(prctl(PR_SET_TSC, PR_TSC_ENABLE) == 0);
    puts("denied");
}

FAULTING(reads, "nop\n" FAULT "mov (%rdi), %rax\n")
FAULTING(writes, "nop\n nop\n" FAULT "mov %rbx, 16(%rdi)\n")
FAULTING(changes, "jmp 3f\n 3:" FAULT "lock addl $5, 4(%rdi)\n")
FAULTING(reads_a_vector, FAULT "movdqu (%rdi, %rsi), %xmm0\n")
FAULTING(reads_an_aligned_vector, FAULT "movaps 1(%rdi), %xmm0\n")
FAULTING(beyond_addresses, "movabs $0x8000000000000000, %rdx\n" FAULT "mov (%rdx), %rax\n")
FAULTING(calls_by_memory, FAULT "call *(%rdi)\n")
FAULTING(jumps_by_memory, FAULT "jmp *(%rdi)\n")
FAULTING(pushes_memory, FAULT "pushq (%rdi)\n")
FAULTING(compares_and_exchanges, FAULT "lock cmpxchg16b (%rdi)\n")
FAULTING(copies, "mov %rdi, %rdx\n" FAULT "movsq\n")
CASE(memory) {
    catch_all();
    char *none = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *fixed = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(none + 4096, 4096);
    uint64_t denied = (uint64_t)none, absent = denied + 4096, constant = (uint64_t)fixed;
    for (int i = 0; i < OFTEN; i++) {
        expect(reads, denied + 8, 2, 3, SIGSEGV, SEGV_ACCERR, denied + 8, 0);
        SAME(registers[REG_ERR], 4);
        expect(reads, absent, 2, 3, SIGSEGV, SEGV_MAPERR, absent, 0);
        SAME(registers[REG_TRAPNO], 14);
        SAME(registers[REG_CR2], absent);
        expect(reads, 0, 2, 3, SIGSEGV, SEGV_MAPERR, 0, 0);
        expect(writes, constant, 2, 3, SIGSEGV, SEGV_ACCERR, constant + 16, 0);
        SAME(registers[REG_ERR] & 6, 6);
        expect(changes, constant, 2, 3, SIGSEGV, SEGV_ACCERR, constant + 4, 0);
        expect(reads_a_vector, denied, 64, 3, SIGSEGV, SEGV_ACCERR, denied + 64, 0);
        expect(reads_an_aligned_vector, constant, 2, 3, SIGSEGV, SI_KERNEL, 0, 0);
        SAME(registers[REG_TRAPNO], 13);
        expect(beyond_addresses, 1, 2, 3, SIGSEGV, SI_KERNEL, 0, 0);
        expect(calls_by_memory, denied, 2, 3, SIGSEGV, SEGV_ACCERR, denied, 0);
        expect(jumps_by_memory, denied, 2, 3, SIGSEGV, SEGV_ACCERR, denied, 0);
        expect(pushes_memory, denied, 2, 3, SIGSEGV, SEGV_ACCERR, denied, 0);
        expect(compares_and_exchanges, constant, 2, 3, SIGSEGV, SEGV_ACCERR, constant, 0);
        expect(copies, constant, denied, 3, SIGSEGV, SEGV_ACCERR, denied, 0);
    }
    printf("%d\n", faults);
}

static uint64_t relative_pointer __attribute__((used));
FAULTING(divides, "xor %edx, %edx\n xor %ecx, %ecx\n stc\n" FAULT "div %rcx\n")
FAULTING(divides_too_much, "mov $-1, %rdx\n mov $2, %ecx\n stc\n" FAULT "div %ecx\n")
FAULTING(divides_by_memory, "movq $0, relative_pointer(%rip)\n xor %edx, %edx\n stc\n" FAULT
                            "divq relative_pointer(%rip)\n")
FAULTING(divides_vectors, "sub $16, %rsp\n movl $0x1d80, (%rsp)\n ldmxcsr (%rsp)\n add $16, %rsp\n stc\n"
                          "xorps %xmm1, %xmm1\n" FAULT "divss %xmm1, %xmm7\n")
FAULTING(divides_in_the_coprocessor, "sub $16, %rsp\n movl $0x37b, (%rsp)\n fninit\n fldcw (%rsp)\n add $16, %rsp\n"
                                     "stc\n fldz\n fld1\n fdivp\n" FAULT "fwait\n")
CASE(arithmetic) {
    catch_all();
    for (int i = 0; i < OFTEN; i++) {
        expect(divides, 1, 2, 3, SIGFPE, FPE_INTDIV, ~0ul, 0);
        expect(divides_too_much, 1, 2, 3, SIGFPE, FPE_INTDIV, ~0ul, 0);
        expect(divides_by_memory, 1, 2, 3, SIGFPE, FPE_INTDIV, ~0ul, 0);
        expect(divides_vectors, 1, 2, 3, SIGFPE, FPE_FLTDIV, ~0ul, 0);
        unsigned usual = 0x1f80;
        asm volatile("ldmxcsr %0" : : "m"(usual));
        expect(divides_in_the_coprocessor, 1, 2, 3, SIGFPE, FPE_FLTDIV, ~0ul, 0);
        asm volatile("fninit");
    }
    printf("%d\n", faults);
}

/* Code that is not there: the address is that of the code, the return address is already pushed. */
static sigjmp_buf place;
static uint64_t top;
static void on_bad_code(int number, siginfo_t *given, void *context) {
    const ucontext_t *user = context;
    info = *given;
    memcpy(registers, user->uc_mcontext.gregs, sizeof registers);
    faults++;
    if (user->uc_mcontext.gregs[REG_RSP]) top = *(uint64_t *)user->uc_mcontext.gregs[REG_RSP];
    siglongjmp(place, number);
}
static void try_code(void *code, int number, int kind) {
    if (sigsetjmp(place, 1) == 0) {
        asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, %1\n mov $77, %%ecx\n"
                     "sub $128, %%rsp\n call *%0\n 1: add $128, %%rsp"
                     : : "r"(code), "m"(marks[0])
                     : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
        wrong("that went well");
    }
    SAME(info.si_signo, number);
    SAME(info.si_code, kind);
    SAME(info.si_addr, code);
    SAME(registers[REG_RIP], code);
    SAME(registers[REG_RAX], marks[0]);
    SAME(registers[REG_RCX], 77);
    SAME(top, marks[0]);
}
CASE(code_that_is_not_there) {
    struct sigaction action = {.sa_sigaction = on_bad_code, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    FILE *file = tmpfile();
    char *beyond = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fileno(file), 0);
    CHECK(beyond != MAP_FAILED);
    char *data = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(data + 4096, 4096);
    data[0] = (char)0xc3;
    for (int i = 0; i < OFTEN; i++) {
        try_code(data, SIGSEGV, SEGV_ACCERR);
        SAME(registers[REG_ERR], 0x14 | 1);
        try_code(data + 4096, SIGSEGV, SEGV_MAPERR);
        SAME(registers[REG_ERR], 0x14);
        try_code(NULL, SIGSEGV, SEGV_MAPERR);
        try_code(beyond, SIGBUS, BUS_ADRERR);
    }
    printf("%d\n", faults);
}
/* The same when running into it: the address is that of the page, the instruction's that of its start. */
CASE(code_that_ends) {
    struct sigaction action = {.sa_sigaction = on_bad_code, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    uint8_t *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(pages, 0x90, 4096);
    memcpy(pages + 4093, "\xb8\x01\x02", 3); /* the beginning of a mov */
    mprotect(pages, 4096, PROT_READ | PROT_EXEC);
    mprotect(pages + 4096, 4096, PROT_NONE);
    for (volatile int i = 0; i < OFTEN; i++) {
        if (sigsetjmp(place, 1) == 0) {
            ((void (*)(void))(pages + 4000))();
            wrong("that went well");
        }
        SAME(info.si_addr, pages + 4096);
        SAME(registers[REG_RIP], pages + 4093);
    }
    printf("%d\n", faults);
}
static const uint64_t nowhere = 0x1234567812345678;
static const char *is_at(uint64_t address) {
    uint64_t at = (uint64_t)registers[REG_RIP];
    return at == address || at == nowhere ? "there" : "elsewhere";
}
/* An address that no code can have: some processors fault before they go there, some when they are. */
CASE(code_beyond_addresses) {
    struct sigaction action = {.sa_sigaction = on_bad_code, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    static uint64_t jump_at, return_at;
    for (volatile int i = 0; i < OFTEN; i++) {
        if (sigsetjmp(place, 1) == 0)
            asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n movabs $0x1234567812345678, %%rax\n 1: jmp *%%rax"
                         : "=m"(jump_at) : : "rax", "memory");
        else if (i == 0)
            printf("jump: %s, code %d\n", is_at(jump_at), info.si_code);
        if (sigsetjmp(place, 1) == 0)
            asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n movabs $0x1234567812345678, %%rax\n"
                         "push %%rax\n 1: ret"
                         : "=m"(return_at) : : "rax", "memory");
        else if (i == 0)
            printf("return: %s, code %d\n", is_at(return_at), info.si_code);
    }
    printf("%d\n", faults);
}

/* The same, for what is told of it wherever that is. */
CASE(code_beyond_addresses_told) {
    struct sigaction action = {.sa_sigaction = on_bad_code, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    for (volatile int i = 0; i < OFTEN; i++) {
        memset(&info, 0, sizeof info);
        if (sigsetjmp(place, 1) == 0)
            asm volatile("mov $77, %%ecx\n movabs $0x1234567812345678, %%rax\n jmp *%%rax" : : : "rax", "rcx", "memory");
        SAME(info.si_signo, SIGSEGV);
        SAME(info.si_code, SI_KERNEL);
        SAME(info.si_addr, 0);
        SAME(registers[REG_RAX], 0x1234567812345678);
        SAME(registers[REG_RCX], 77);
        SAME(registers[REG_TRAPNO], 13);
    }
    printf("%d\n", faults);
}

/* A handler that mends what was wrong and lets the instruction be tried again. */
static char *region;
static void mend(int number, siginfo_t *given, void *context) {
    (void)context;
    CHECK(number == SIGSEGV);
    char *page = (char *)((uint64_t)given->si_addr & ~4095ul);
    CHECK(page >= region && page < region + 64 * 4096);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    faults++;
}
CASE(mended) {
    struct sigaction action = {.sa_sigaction = mend, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    region = mmap(NULL, 64 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(region, 7, 32 * 4096); /* in the midst of a string instruction, or of vectors */
    uint64_t sum = 0;
    for (int i = 32; i < 64; i++) {
        sum += __atomic_add_fetch((uint64_t *)(region + i * 4096 + 8), 3, __ATOMIC_SEQ_CST);
        CHECK(*(region + i * 4096) == 0);
    }
    for (int i = 0; i < 32 * 4096; i++) CHECK(region[i] == 7);
    /* And by rep movsb, from one to the next. */
    mprotect(region, 64 * 4096, PROT_NONE);
    char *from = region, *to = region + 32 * 4096;
    uint64_t count = 32 * 4096;
    asm volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
    CHECK(memcmp(region, region + 32 * 4096, 32 * 4096) == 0);
    printf("%d %lu\n", faults, sum);
}

/* The flags for debuggers: one trap after each instruction, in the order of the program. */
static uint64_t trapped[16];
static volatile int traps;
static void on_step(int number, siginfo_t *given, void *context) {
    CHECK(number == SIGTRAP && given->si_code == TRAP_TRACE);
    if (traps < 16) trapped[traps] = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    traps++;
}
CASE(single_steps) {
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    uint64_t start;
    asm volatile("sub $128, %%rsp\n lea 1f(%%rip), %0\n pushfq\n orq $0x100, (%%rsp)\n popfq\n"
                 "1: nop\n jmp 2f\n 2: nop\n call 3f\n jmp 4f\n 3: ret\n"
                 "4: pushfq\n andq $~0x100, (%%rsp)\n popfq\n add $128, %%rsp"
                 : "=&r"(start) : : "cc", "memory");
    printf("%d:", traps);
    for (int i = 0; i < traps && i < 16; i++) printf(" %ld", (long)(trapped[i] - start));
    puts("");
}

/* The same through everything that is more than one instruction in a clone. */
APART static int stepped(int number) { return number * 3; }
ASSEMBLY static int steps_far(int (*function)(int) __attribute__((unused)), char *text __attribute__((unused))) {
    asm("push %rbx\n mov %rdi, %rbx\n mov %rsi, %rdi\n"
        "pushfq\n orq $0x100, (%rsp)\n popfq\n"
        "mov $3, %ecx\n"
        "1: loop 1b\n"
        "mov $7, %ecx\n mov $120, %eax\n"
        "rep stosb\n"
        "mov $5, %edi\n"
        "call *%rbx\n"
        "mov %eax, %edi\n"
        "call 2f\n"
        "jmp 3f\n"
        "2: ret\n"
        "3: lea 4f(%rip), %rdx\n"
        "jmp *%rdx\n"
        "ud2\n"
        "4: cmp $1, %edi\n je 4b\n jne 5f\n nop\n"
        "5: pushfq\n andq $~0x100, (%rsp)\n popfq\n"
        "mov %edi, %eax\n pop %rbx\n ret");
}
CASE(single_steps_far) {
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    static char text[16];
    for (int round = 0; round < 3; round++) {
        traps = 0;
        SAME(steps_far(stepped, text), 15);
        printf("%d %s:", traps, text);
        for (int i = 0; i < traps && i < 16; i++) printf(" %ld", (long)(trapped[i] - (uint64_t)steps_far));
        puts("");
    }
}

/* The same in code that may change at any time, through another mapping of it. */
CASE(single_steps_checked) {
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    FILE *file = tmpfile();
    CHECK(ftruncate(fileno(file), 4096) == 0);
    char *view = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    char *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fileno(file), 0);
    for (int round = 0; round < 3; round++) {
        memcpy(view, "\x90\x31\xc0\xff\xc0\xeb\x00\xc3", 8); /* nop; xor; inc; jmp; ret */
        traps = 0;
        asm volatile("sub $128, %%rsp\n pushfq\n orq $0x100, (%%rsp)\n popfq\n call *%0\n"
                     "pushfq\n andq $~0x100, (%%rsp)\n popfq\n add $128, %%rsp"
                     : : "r"(code) : "rax", "cc", "memory");
        printf("%d:", traps);
        for (int i = 0; i < traps && i < 16; i++) {
            uint64_t offset = trapped[i] - (uint64_t)code;
            if (offset < 4096) printf(" %ld", (long)offset);
        }
        puts("");
    }
}

/* The same while other signals come, of which nobody knows when: also on the way into the engine. */
static volatile int ticks, is_stepped_over;
static void on_tick(int number) {
    CHECK(number == SIGUSR1);
    ticks++;
}
static void *send_ticks(void *to) {
    while (!is_stepped_over) {
        pthread_kill(*(pthread_t *)to, SIGUSR1);
        usleep(100);
    }
    return NULL;
}
static void count_step(int number) {
    CHECK(number == SIGTRAP);
    traps++;
}
CASE(single_steps_between_signals) {
    signal(SIGTRAP, count_step);
    signal(SIGUSR1, on_tick);
    pthread_t self = pthread_self(), other;
    CHECK(pthread_create(&other, NULL, send_ticks, &self) == 0);
    int value = 1;
    asm volatile("sub $128, %%rsp\n pushfq\n orq $0x100, (%%rsp)\n popfq" : : : "cc", "memory");
    for (int i = 0; i < 3000 || ticks < 3; i++) value = stepped(value) | 1;
    asm volatile("pushfq\n andq $~0x100, (%%rsp)\n popfq\n add $128, %%rsp" : : : "cc", "memory");
    is_stepped_over = 1;
    pthread_join(other, NULL);
    CHECK(value & 1 && traps > 9000);
    puts("stepped");
}

/* One call with a prefix that does nothing, and who comes to it behind that: both fault in their own instruction. */
ASSEMBLY static void prefixed_call(void) {
    asm(".byte 0x66, 0x48\n call 1f\n 1: ret"); /* pushes to where nothing can be written */
}
static uint64_t saved_stack;
APART static void call_without_stack(char *at, char *stack) {
    asm volatile("push %%rbp\n mov %%rsp, %2\n lea 1f(%%rip), %%rax\n mov %%rax, %3\n"
                 "test %1, %1\n cmovne %1, %%rsp\n jmp *%0\n"
                 "1: mov %2, %%rsp\n pop %%rbp"
                 : : "r"(at), "r"(stack), "m"(saved_stack), "m"(marks[1])
                 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory");
}
CASE(prefixes_before_a_call) {
    static char stack[65536];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    char *wall = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 3; round++)
        for (int past = 0; past < 3; past++) {
            call_without_stack((char *)prefixed_call + past, wall + 4096);
            SAME(registers[REG_RIP], (uint64_t)prefixed_call + past);
        }
    printf("%d\n", faults);
}

/* The processor ignores a prefix of the kind that names further registers if another one comes between it and the opcode. */
ASSEMBLY static long one(void) { asm("mov $1, %eax\n ret"); }
ASSEMBLY static long two(void) { asm("mov $2, %eax\n ret"); }
static long (*const functions[2])(void) = {one, two};
#define IGNORED(name, ...)                                                                          \
    ASSEMBLY static long name(const void *low __attribute__((unused)), const void *high __attribute__((unused))) { \
        asm("push %rbx\n mov %rdi, %rbx\n mov %rdi, %rcx\n mov %rsi, %r9\n mov %rsi, %r11\n"       \
            ".byte " #__VA_ARGS__ "\n pop %rbx\n ret");                                            \
    }
IGNORED(call_rbx, 0x41, 0x48, 0xff, 0xd3)
IGNORED(call_r11, 0x48, 0x41, 0xff, 0xd3)
IGNORED(call_rbx_cs, 0x41, 0x2e, 0xff, 0xd3)
IGNORED(call_rcx_memory, 0x41, 0x40, 0xff, 0x11)
IGNORED(call_r9_memory, 0x48, 0x41, 0xff, 0x11)
IGNORED(call_rcx_further, 0x41, 0x48, 0xff, 0x51, 0x08)
CASE(ignored_prefixes) {
    for (int round = 0; round < 3; round++) {
        printf("%ld %ld %ld", call_rbx(one, two), call_r11(one, two), call_rbx_cs(one, two));
        printf(" %ld %ld", call_rcx_memory(&functions[0], &functions[1]), call_r9_memory(&functions[0], &functions[1]));
        printf(" %ld\n", call_rcx_further(&functions[0], &functions[0]));
    }
}

/* The flag that makes the processor strict about alignment. */
FAULTING(strict, "pushfq\n orq $0x40000, (%rsp)\n popfq\n stc\n" FAULT "mov 1(%rdi), %eax\n")
static void on_strictness(int number, siginfo_t *given, void *context) {
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x40000;
    on_fault(number, given, context);
}
CASE(alignment) {
    static uint64_t aligned[2];
    struct sigaction action = {.sa_sigaction = on_strictness, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    for (int i = 0; i < OFTEN; i++) {
        expect(strict, (uint64_t)aligned, 2, 3, SIGBUS, BUS_ADRALN, 0, 0);
    }
    printf("%d\n", faults);
}

/* Memory of a file that has become shorter. */
CASE(bus_error) {
    catch_all();
    FILE *file = tmpfile();
    CHECK(ftruncate(fileno(file), 8192) == 0);
    char *view = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    view[4096] = 1;
    CHECK(ftruncate(fileno(file), 4096) == 0);
    uint64_t cut = (uint64_t)view + 5000;
    for (int i = 0; i < OFTEN; i++) expect(reads, cut, 2, 3, SIGBUS, BUS_ADRERR, cut, 0);
    printf("%d\n", faults);
}
