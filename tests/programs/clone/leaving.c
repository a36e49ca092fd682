/* What a clone cannot go on with. Each case leaves it in the middle, and must not notice: all that it has
 * is still there, and all that it has asked for is still so. */
#define _GNU_SOURCE
#include "check.h"
#include <asm/prctl.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

/* --- instructions that cannot be translated --- */

ASSEMBLY static long far_transfers(void) {
    asm("mov %rsp, %rdx\n"
        "mov %ss, %eax\n"
        "push %rax\n"
        "push %rdx\n"
        "pushfq\n"
        "mov %cs, %eax\n"
        "push %rax\n"
        "lea 1f(%rip), %rax\n"
        "push %rax\n"
        "iretq\n"
        "ud2\n"
        "1: cmp %rsp, %rdx\n"
        "jne 9f\n"
        "mov %cs, %eax\n"
        "push %rax\n"
        "lea 2f(%rip), %rax\n"
        "push %rax\n"
        "lretq\n"
        "ud2\n"
        "2: cmp %rsp, %rdx\n"
        "jne 9f\n"
        "mov $6, %eax\n"
        "ret\n"
        "9: ud2");
}
CASE(far_transfers) {
    for (int i = 0; i < 100; i++) SAME(far_transfers(), 6);
}

static uint64_t block[8] = {10, 20, 30};
static void use_gs(void) { CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, block) == 0); }

CASE(strings_through_gs) {
    use_gs();
    uint64_t value, from = 8;
    asm volatile("lodsq %%gs:(%%rsi), %%rax" : "=a"(value), "+S"(from));
    SAME(value, 20);
    SAME(from, 16);
}
CASE(another_gs) {
    use_gs();
    uint16_t none = 0, now;
    asm volatile("mov %1, %%gs\n mov %%gs, %0" : "=r"(now) : "r"(none));
    SAME(now, 0);
    /* How much of the base that leaves is the processor's business. */
    use_gs();
    uint64_t value;
    asm volatile("mov %%gs:8, %0" : "=r"(value));
    SAME(value, 20);
}

/* --- what goes wrong in the engine itself --- */

static sigjmp_buf back;
static void *faulted_at;
static void jumps_back(int number, siginfo_t *info, void *context) {
    CHECK(number == SIGBUS && context);
    faulted_at = info->si_addr;
    siglongjmp(back, 1);
}
/* Code that the engine has found readable is so no more when it reads on. */
static void lose_code(int sharing, size_t offset) {
    static const uint8_t code[] = {0xb8, 1, 0, 0, 0, 0xc3, 0x90, 0x90, 0xb8, 2, 0, 0, 0, 0xc3};
    struct sigaction action = {.sa_sigaction = jumps_back, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    int file = memfd_create("code", 0);
    CHECK(file >= 0 && ftruncate(file, 4096) == 0 && pwrite(file, code, sizeof code, 0) == sizeof code);
    uint8_t *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, sharing, file, 0);
    CHECK(at != MAP_FAILED);
    int (*first)(void) = (int (*)(void))at, (*next)(void) = (int (*)(void))(at + offset);
    SAME(first(), 1);
    CHECK(ftruncate(file, 0) == 0);
    if (sigsetjmp(back, 1) == 0) printf("%d\n", next());
    CHECK(faulted_at == (void *)next);
    CHECK(ftruncate(file, 4096) == 0 && pwrite(file, code, sizeof code, 0) == sizeof code);
    SAME(next(), offset ? 2 : 1);
}
CASE(code_vanishes) { lose_code(MAP_PRIVATE, 8); }
CASE(shared_code_vanishes) { lose_code(MAP_SHARED, 0); }

/* Natively, the handler's first instruction is a fault that ends the program. */
CASE(handler_vanishes) {
    static const uint8_t returns[] = {0xc3, 0x90, 0x90, 0x90, 0xc3};
    int file = memfd_create("code", 0);
    CHECK(file >= 0 && ftruncate(file, 4096) == 0 && pwrite(file, returns, sizeof returns, 0) == sizeof returns);
    uint8_t *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    CHECK(code != MAP_FAILED && signal(SIGUSR1, (void (*)(int))(code + 4)) != SIG_ERR);
    ((void (*)(void))code)();
    CHECK(ftruncate(file, 0) == 0);
    raise(SIGUSR1);
}

/* By another process: it would leave its clone before it does so itself. */
static void allow_memory(size_t more) {
    FILE *file = fopen("/proc/self/statm", "r");
    size_t pages;
    CHECK(file && fscanf(file, "%zu", &pages) == 1 && fclose(file) == 0);
    struct rlimit limit = {pages * 4096 + more, RLIM_INFINITY};
    pid_t child = fork();
    if (child == 0) _exit(prlimit(getppid(), RLIMIT_AS, &limit, NULL) != 0);
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}
CASE(no_memory_for_a_child) {
    allow_memory(64 << 20);
    pid_t child = fork();
    if (child == 0) _exit(9);
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    SAME(WEXITSTATUS(status), 9);
}
/* More code than the engine has memory to keep count of. */
CASE(no_memory_for_code) {
    enum { SIZE = 64 << 20 };
    uint8_t *code = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED);
    memset(code, 0xc3, SIZE); /* ret */
    CHECK(mprotect(code, SIZE, PROT_READ | PROT_EXEC) == 0);
    ((void (*)(void))code)();
    allow_memory(3 << 20);
    for (size_t at = 0; at < SIZE; at += 256) ((void (*)(void))(code + at))();
}

/* --- what a program has stays --- */

static atomic_int caught;
static void catches(int number, siginfo_t *info, void *context) {
    char here;
    stack_t stack;
    CHECK(number == SIGUSR1 && info->si_pid == getpid() && context);
    CHECK(sigaltstack(NULL, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) &&
          &here > (char *)stack.ss_sp && &here < (char *)stack.ss_sp + stack.ss_size);
    caught++;
}
static char other_stack[64 << 10];
static void expect_signals(void) {
    stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_sigaction = catches, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    action.sa_handler = SIG_IGN;
    action.sa_flags = 0;
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGSEGV);
    CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0);
}
static void find_signals_as_they_were(void) {
    stack_t stack;
    CHECK(sigaltstack(NULL, &stack) == 0);
    CHECK(stack.ss_sp == other_stack && stack.ss_size == sizeof other_stack && stack.ss_flags == 0);
    struct sigaction action;
    CHECK(sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_sigaction == catches);
    CHECK(sigaction(SIGSEGV, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    sigset_t set;
    CHECK(sigprocmask(SIG_SETMASK, NULL, &set) == 0);
    for (int number = 1; number < 65; number++)
        CHECK(sigismember(&set, number) == (number == SIGHUP || number == SIGSEGV));
    raise(SIGUSR2);
    raise(SIGUSR1);
    SAME(caught, 1);
}
CASE(signals_stay) {
    expect_signals();
    SAME(far_transfers(), 6);
    find_signals_as_they_were();
}
/* The same for one that nobody takes out: a child that has borrowed its parent's memory. */
CASE(borrowed_memory) {
    expect_signals();
    static atomic_int outcome;
    pid_t child = vfork();
    if (child == 0) {
        outcome = (int)far_transfers();
        sigset_t set;
        sigprocmask(SIG_SETMASK, NULL, &set);
        _exit(sigismember(&set, SIGHUP) == 1 && sigismember(&set, SIGINT) == 0 ? 7 : 8);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    SAME(WEXITSTATUS(status), 7);
    SAME(outcome, 6);
    find_signals_as_they_were();
}

ASSEMBLY static void vectors_stay(const uint8_t *in, uint8_t *out) {
    (void)in, (void)out;
    asm("movups (%rdi), %xmm0\n movups 16(%rdi), %xmm9\n movups 32(%rdi), %xmm15\n"
        "stmxcsr -8(%rsp)\n xorl $0x6000, -8(%rsp)\n ldmxcsr -8(%rsp)\n"
        "fldpi\n"
        "mov %rsp, %rdx\n"
        "mov %cs, %eax\n"
        "push %rax\n"
        "lea 1f(%rip), %rax\n"
        "push %rax\n"
        "stc\n std\n"
        "lretq\n"
        "1: jnc 9f\n"
        "pushfq\n pop %rax\n cld\n test $0x400, %eax\n jz 9f\n"
        "cmp %rsp, %rdx\n jne 9f\n"
        "movups %xmm0, (%rsi)\n movups %xmm9, 16(%rsi)\n movups %xmm15, 32(%rsi)\n"
        "stmxcsr -8(%rsp)\n xorl $0x6000, -8(%rsp)\n ldmxcsr -8(%rsp)\n"
        "fstpt 48(%rsi)\n"
        "ret\n"
        "9: ud2");
}
CASE(registers_stay) {
    uint8_t in[48], out[58];
    for (size_t i = 0; i < sizeof in; i++) in[i] = (uint8_t)(i * 7 + 3);
    vectors_stay(in, out);
    CHECK(memcmp(in, out, sizeof in) == 0);
    long double pi;
    asm("fldpi" : "=t"(pi));
    CHECK(memcmp(out + 48, &pi, 10) == 0);
}

/* --- a clone that somebody else changes --- */

/* Computes until its standard input ends, with an instruction that can be found in the clone. */
APART static uint64_t compute(uint64_t value) {
    for (int i = 0; i < 100; i++) {
        uint32_t part;
        asm volatile("mov $0x5eed1e55, %0" : "=r"(part));
        value = value * 5 + part + (uint64_t)i;
    }
    return value;
}
static void until_input_ends(void (*does)(void)) {
    puts("here");
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, 0) == 0) does();
}
static void compute_rightly(void) { SAME(compute(1), 0x728d16b859e7f553u); }
CASE(is_changed) { until_input_ends(compute_rightly); }

/* --- when weft has left, too --- */

static void rest(void) { usleep(1000); }
CASE(left_alone) {
    expect_signals();
    until_input_ends(rest);
    SAME(far_transfers(), 6);
    find_signals_as_they_were();
}
static void *rests(void *unused) {
    for (;;) rest();
    return unused;
}
CASE(left_with_a_thread) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, rests, NULL) == 0);
    until_input_ends(rest);
    SAME(far_transfers(), 6);
}

/* --- what weft has mapped --- */

APART void counted(void) { asm volatile(""); }
static void count_and_rest(void) {
    counted();
    usleep(1000);
}
static void *counts(void *barrier) {
    pthread_barrier_wait(barrier);
    for (;;) count_and_rest();
    return NULL;
}
/* Threads without end, which have all begun. */
static void begin_counting(long threads) {
    static pthread_barrier_t barrier;
    CHECK(pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1) == 0);
    pthread_t thread;
    for (long i = 0; i < threads; i++) CHECK(pthread_create(&thread, NULL, counts, &barrier) == 0);
    pthread_barrier_wait(&barrier);
}
CASE(counting) {
    begin_counting(or_else(amount, 1) - 1);
    until_input_ends(count_and_rest);
}
/* As much is mapped as natively, but for what grows. */
CASE(nothing_is_left) {
    begin_counting(or_else(amount, 1) - 1);
    for (int i = 0; i < 10; i++) counted();
    SAME(far_transfers(), 6);
    FILE *file = fopen("/proc/self/maps", "r");
    unsigned long start, end, size = 0;
    char line[512];
    while (fgets(line, sizeof line, file))
        if (!strstr(line, "[heap]") && !strstr(line, "[stack]") && sscanf(line, "%lx-%lx", &start, &end) == 2)
            size += end - start;
    fclose(file);
    printf("%lu KiB\n", size >> 10);
}

/* --- others of the process, and other processes --- */

static atomic_int ended;
static atomic_long rounds[4], ticks;
static void tick(int number) { ticks += number == SIGALRM; }
static void *computes(void *which) {
    while (!ended) {
        uint64_t value = 1;
        for (int i = 0; i < 1000; i++) value = value * 3 + (uint64_t)i;
        SAME(value, 0xeb9c385ac8a66ff5u);
        rounds[(long)which]++;
    }
    return NULL;
}
static void *naps(void *which) {
    while (!ended) {
        struct timespec little = {0, 1000000};
        while (nanosleep(&little, &little) != 0) CHECK(errno == EINTR);
        rounds[(long)which]++;
    }
    return NULL;
}
static void *waits(void *which) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    while (!ended) {
        struct pollfd poller = {.fd = ends[0], .events = POLLIN};
        int result = poll(&poller, 1, 1);
        CHECK(result == 0 || (result == -1 && errno == EINTR));
        rounds[(long)which]++;
    }
    return NULL;
}
static void wait_for_rounds(void) {
    for (int i = 0; i < 4; i++)
        for (long before = rounds[i]; rounds[i] < before + 3;) usleep(100);
}
CASE(with_other_threads) {
    signal(SIGALRM, tick);
    struct itimerspec often = {{0, 300000}, {0, 300000}};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
    CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    pthread_t threads[4];
    void *(*const does[])(void *) = {computes, computes, naps, waits};
    for (long i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, does[i], (void *)i) == 0);
    wait_for_rounds();
    SAME(far_transfers(), 6);
    wait_for_rounds();
    for (long before = ticks; ticks < before + 10;) usleep(100);
    ended = 1;
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}
static void *leaves(void *unused) {
    for (int i = 0; i < 100; i++) SAME(far_transfers(), 6);
    return unused;
}
CASE(all_at_once) {
    pthread_t threads[16];
    for (int i = 0; i < 16; i++) CHECK(pthread_create(&threads[i], NULL, leaves, NULL) == 0);
    for (int i = 0; i < 16; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}
static long leave_and_count(int children) {
    pid_t all[8];
    for (int i = 0; i < children; i++)
        if ((all[i] = fork()) == 0) _exit((int)far_transfers());
    long sum = 0;
    for (int i = 0; i < children; i++) {
        int status;
        CHECK(waitpid(all[i], &status, 0) == all[i] && WIFEXITED(status));
        sum += WEXITSTATUS(status);
    }
    return sum;
}
CASE(children) { SAME(leave_and_count(4), 24); }
CASE(children_of_a_child) {
    pid_t child = fork();
    if (child == 0) _exit((int)leave_and_count(2));
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    SAME(WEXITSTATUS(status), 12);
}
static void leaves_too(int number) { caught += number == SIGUSR1 && far_transfers() == 6; }
CASE(in_a_handler) {
    signal(SIGUSR1, leaves_too);
    for (int i = 0; i < 100; i++) raise(SIGUSR1);
    SAME(caught, 100);
}
