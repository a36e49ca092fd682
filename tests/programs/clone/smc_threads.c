/* Code that is changed by another thread, or in a signal handler, while it runs or waits to. */
#define _GNU_SOURCE
#include "made.h"
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/ucontext.h>
#include <time.h>

static uint8_t *code;
static atomic_int turn, ended;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}
/* Longer than a change takes to be seen, if it is. */
#define PATIENCE 5.0
/* Whether to look once more: for so long, and so often if the machine stood still meanwhile. */
static int is_awaited(double since, int looks) { return now() < since + PATIENCE || looks < 500; }

static void new_code(uint32_t value) {
    code = pages(1, RWX);
    put_constant(code, value);
}

/* --- one after the other --- */

static void *changes_by_spinning(void *unused) {
    for (uint32_t i = 1; i <= 5; i++) {
        while (turn != 1) sched_yield();
        put_constant(code, i * 10);
        turn = 0;
    }
    return unused;
}
SMC(handed_over_by_spinning, "1 10 20 30 40 50", "1 1 1 1 1 1") {
    new_code(1);
    pthread_t thread;
    pthread_create(&thread, NULL, changes_by_spinning, NULL);
    say("%ld", call(code));
    for (int i = 0; i < 5; i++) {
        turn = 1;
        while (turn != 0) sched_yield();
        serialize();
        say("%ld", call(code));
    }
    pthread_join(thread, NULL);
}
/* Without a system call or a return between the change and the word that it is done. */
ASSEMBLY static void changes_bare(void *place __attribute__((unused)), long value __attribute__((unused)),
                                  atomic_int *flag __attribute__((unused))) {
    asm("1: cmpl $1, (%rdx)\n"
        "jne 1b\n"
        "mov %esi, 1(%rdi)\n"
        "movl $0, (%rdx)\n"
        "2: cmpl $2, (%rdx)\n" /* and no return until it was seen */
        "jne 2b\n"
        "movl $3, (%rdx)\n"
        "ret");
}
static void *changes_without_returning(void *unused) {
    for (int i = 1; i <= 5; i++) changes_bare(code, i * 10, &turn);
    return unused;
}
SMC(handed_over_bare, "1 10 20 30 40 50", "1 1 1 1 1 1") {
    new_code(1);
    pthread_t thread;
    pthread_create(&thread, NULL, changes_without_returning, NULL);
    say("%ld", call(code));
    for (int i = 0; i < 5; i++) {
        turn = 1;
        while (turn != 0) sched_yield();
        serialize();
        say("%ld", call(code));
        turn = 2;
        while (turn != 3) sched_yield();
    }
    pthread_join(thread, NULL);
}
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static void pass_to(int other) {
    turn = other;
    pthread_cond_broadcast(&changed);
}
static void wait_for(int number) {
    while (turn != number) pthread_cond_wait(&changed, &lock);
}
static void *changes_by_futex(void *unused) {
    pthread_mutex_lock(&lock);
    for (uint32_t i = 1; i <= 5; i++) {
        wait_for(1);
        put_constant(code, i * 10);
        pass_to(0);
    }
    pthread_mutex_unlock(&lock);
    return unused;
}
SMC(handed_over_by_futex, "1 10 20 30 40 50", "1 1 1 1 1 1") {
    new_code(1);
    pthread_t thread;
    say("%ld", call(code));
    pthread_mutex_lock(&lock);
    pthread_create(&thread, NULL, changes_by_futex, NULL);
    for (int i = 0; i < 5; i++) {
        pass_to(1);
        wait_for(0);
        serialize();
        say("%ld", call(code));
    }
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
}
static pthread_t first;
static void on_word(int number) {
    (void)number;
    turn++;
}
static void *changes_by_signal(void *unused) {
    for (uint32_t i = 1; i <= 5; i++) {
        put_constant(code, i * 10);
        int before = turn;
        pthread_kill(first, SIGUSR1);
        while (ended != (int)i || turn == before) sched_yield();
    }
    return unused;
}
SMC(handed_over_by_signal, "1 10 20 30 40 50", "1 1 1 1 1 1") {
    struct sigaction action = {.sa_handler = on_word};
    sigaction(SIGUSR1, &action, NULL);
    new_code(1);
    say("%ld", call(code));
    first = pthread_self();
    pthread_t thread;
    pthread_create(&thread, NULL, changes_by_signal, NULL);
    for (int i = 1; i <= 5; i++) {
        while (turn < i) sched_yield();
        serialize();
        say("%ld", call(code));
        ended = i;
    }
    pthread_join(thread, NULL);
}
/* The one who changes flips the protection of code that the other has on its stack. */
static void *flips(void *unused) {
    for (uint32_t i = 1; i <= 50; i++) {
        while (turn != 1) sched_yield();
        mprotect(code, PAGE, RW);
        put_constant(code, i);
        mprotect(code, PAGE, RX);
        turn = 0;
    }
    return unused;
}
SMC(flipped_by_another, "1275", "0") {
    new_code(0);
    mprotect(code, PAGE, RX);
    call(code);
    pthread_t thread;
    pthread_create(&thread, NULL, flips, NULL);
    long sum = 0;
    for (int i = 0; i < 50; i++) {
        turn = 1;
        while (turn != 0) sched_yield();
        serialize();
        sum += call(code);
    }
    pthread_join(thread, NULL);
    say("%ld", sum);
}

/* --- while it runs --- */

static atomic_long seen;
static void *runs_until_ended(void *unused) {
    while (!ended) seen = call(code + 3);
    return unused;
}
/* Looked at once a turn: one of the two may still have an old value in its hand, and put it down late. */
static int is_seen(long value) {
    double since = now();
    for (int looks = 0; is_awaited(since, looks); looks++, sched_yield())
        if (seen == value) return 1;
    return 0;
}
/* The operand of an instruction, at a multiple of four, while others execute it. */
SMC(operand_while_it_runs, "200", "0 | 1") {
    code = pages(1, RWX);
    put_constant(code + 3, 0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, runs_until_ended, NULL);
    long patched = 0;
    for (uint32_t i = 1; i <= 200; i++) {
        __atomic_store_n((uint32_t *)(code + 4), i, __ATOMIC_SEQ_CST);
        if (!is_seen(i)) break;
        patched = i;
    }
    ended = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    say("%ld", patched);
}

/* Two change the same page in the same moment: both are denied it, and only one of them is the first. */
enum { ROUNDS = 100, PAGES = 30 };
static atomic_int arrived[2];
static void meet(int me, int round) {
    arrived[me] = round;
    /* They shall go on at the same time, unless there is one processor for both. */
    for (int turns = 0; arrived[!me] < round; turns++) {
        if (turns < 1000) __builtin_ia32_pause();
        else sched_yield();
    }
}
static void *changes_the_second(void *unused) {
    for (int round = 0; round < ROUNDS * PAGES; round++) {
        uint8_t *page = code + (size_t)(round / ROUNDS) * PAGE;
        meet(1, 2 * round + 1);
        put_constant(page + 64, (uint32_t)round);
        meet(1, 2 * round + 2);
    }
    return unused;
}
SMC(two_at_once, "3000", "0") {
    code = pages(PAGES, RWX);
    for (int i = 0; i < PAGES; i++)
        for (size_t place = 0; place < 128; place += 64) put_constant(code + (size_t)i * PAGE + place, 7777);
    pthread_t thread;
    pthread_create(&thread, NULL, changes_the_second, NULL);
    long right = 0;
    for (int round = 0; round < ROUNDS * PAGES; round++) {
        uint8_t *page = code + (size_t)(round / ROUNDS) * PAGE;
        call(page);
        meet(0, 2 * round + 1);
        put_constant(page, (uint32_t)round);
        meet(0, 2 * round + 2);
        serialize();
        right += call(page) == round && call(page + 64) == round;
    }
    pthread_join(thread, NULL);
    say("%ld", right);
}

/* A place where something is called by its kind, as compilers have it: when the kind is not the one that
 * the code knows, it is a miss. The one who changes it makes it miss, waits until nobody can be on the way
 * to the old target any more, and then changes the target. */
LABEL(cache_kind);
LABEL(cache_target);
LABEL(cache_targets);
FRAGMENT(cache, ".balign 8\n .fill 6, 1, 0x90\n"
                ".byte 0x48, 0xb8\n cache_kind: .quad 0\n" /* movabs, at a multiple of eight */
                "cmp %rdi, %rax\n"
                "jne 1f\n"
                "sub $8, %rsp\n"
                ".balign 8, 0x90\n nop\n nop\n nop\n"
                ".byte 0xe8\n cache_target: .long 0\n"
                "add $8, %rsp\n"
                "ret\n"
                "1: mov $-1, %eax\n"
                "ret\n"
                ".balign 64\n cache_targets:");
static atomic_long hits[8], strays, asked;
static void *asks_for_kinds(void *unused) {
    for (; !ended; asked++)
        for (long kind = 1; kind <= 4; kind++) {
            long answer = call_with(code, kind, 0, 0);
            if (answer == kind * 100)
                hits[kind]++;
            else if ((int)answer != -1)
                strays++;
        }
    return unused;
}
SMC(inline_cache, "400 0", "0 0") {
    code = pages(1, RWX);
    PUT(code, cache);
    uint64_t *kind = (uint64_t *)AT(code, cache, cache_kind);
    uint8_t *target = AT(code, cache, cache_target), *targets = AT(code, cache, cache_targets);
    CHECK((uint64_t)kind % 8 == 0 && (uint64_t)target % 4 == 0);
    for (uint32_t i = 0; i < 8; i++) put_constant(targets + i * 16, i * 100);
    put_distance(target, targets);
    for (int i = 0; i < 1000; i++) call_with(code, 1, 0, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, asks_for_kinds, NULL);
    long patched = 0;
    for (int i = 0; i < 400; i++) {
        uint64_t next = 1 + (uint64_t)i % 4;
        __atomic_store_n(kind, 0, __ATOMIC_SEQ_CST);
        for (long rounds = asked; asked < rounds + 2;) sched_yield();
        int32_t distance = (int32_t)(targets + next * 16 - (target + 4));
        __atomic_store_n((int32_t *)target, distance, __ATOMIC_SEQ_CST);
        long before = hits[next];
        __atomic_store_n(kind, next, __ATOMIC_SEQ_CST);
        double since = now();
        for (int looks = 0; hits[next] < before + 2 && is_awaited(since, looks); looks++) sched_yield();
        if (hits[next] < before + 2) break;
        patched++;
    }
    ended = 1;
    pthread_join(thread, NULL);
    say("%ld %ld", patched, strays);
}

/* A breakpoint first, then the rest, then the first byte: so can an instruction be changed as a whole. Who
 * comes upon the breakpoint waits. */
static void on_breakpoint(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    ucontext_t *user = context;
    CHECK((uint8_t *)user->uc_mcontext.gregs[REG_RIP] == code + 1);
    /* Who never sees the breakpoint go is let out in the end, to the return. */
    user->uc_mcontext.gregs[REG_RIP] += ended ? CONSTANT - 2 : -1;
    sched_yield();
}
static void *runs_code(void *unused) {
    while (!ended) seen = call(code);
    return unused;
}
/* No thread executes what it has read before this. */
static void all_serialize(void) {
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0) == 0) return;
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
    CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0) == 0);
}
SMC(by_breakpoints, "100", "0 | 1") {
    struct sigaction action = {.sa_sigaction = on_breakpoint, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    new_code(0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, runs_code, NULL);
    long patched = 0;
    for (uint32_t i = 1; i <= 100; i++) {
        *(volatile uint8_t *)code = 0xcc;
        all_serialize();
        memcpy(code + 1, &i, 4);
        all_serialize();
        *(volatile uint8_t *)code = 0xb8;
        if (!is_seen(i)) break;
        patched = i;
    }
    ended = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    say("%ld", patched);
}

/* A jump to itself becomes a way out; who sees nothing of it is fetched by a signal, in the end. */
static sigjmp_buf place;
static void give_up(int number) {
    (void)number;
    siglongjmp(place, 1);
}
static const uint8_t waits[] = {0xeb, 0xfe, 0xb8, 7, 0, 0, 0, 0xc3}; /* jmp to itself; mov $7, %eax; ret */
static void *lets_out(void *unused) {
    struct timespec little = {0, 20000000};
    nanosleep(&little, NULL);
    *(volatile uint16_t *)code = 0x9090;
    return unused;
}
SMC(let_out_by_a_thread, "7", "stuck") {
    struct sigaction action = {.sa_handler = give_up};
    sigaction(SIGALRM, &action, NULL);
    code = pages(1, RWX);
    memcpy(code, waits, sizeof waits);
    pthread_t thread;
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
    pthread_create(&thread, NULL, lets_out, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    alarm((unsigned)PATIENCE);
    if (sigsetjmp(place, 1) == 0)
        say("%ld", call(code));
    else
        say("stuck");
    alarm(0);
    pthread_join(thread, NULL);
}

/* --- in signal handlers --- */

static void let_out(int number) {
    (void)number;
    *(volatile uint16_t *)code = 0x9090;
}
SMC(let_out_by_a_handler, "7", "stuck") {
    struct sigaction action = {.sa_handler = let_out}, last = {.sa_handler = give_up};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGALRM, &last, NULL);
    code = pages(1, RWX);
    memcpy(code, waits, sizeof waits);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec soon = {{0, 0}, {0, 20000000}};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &soon, NULL) == 0);
    alarm((unsigned)PATIENCE);
    if (sigsetjmp(place, 1) == 0)
        say("%ld", call(code));
    else
        say("stuck");
    alarm(0);
}
/* What is no instruction becomes one when it is needed. */
static volatile int tries;
static void on_illegal(int number, siginfo_t *info, void *context) {
    (void)number;
    ucontext_t *user = context;
    CHECK(info->si_addr == code && (uint8_t *)user->uc_mcontext.gregs[REG_RIP] == code);
    put_constant(code, 8);
    if (++tries < 4) return;
    siglongjmp(place, 1);
}
SMC(made_when_needed, "8 1", "stuck 4") {
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
    code = pages(1, RWX);
    memcpy(code, "\x0f\x0b", 2);
    if (sigsetjmp(place, 1) == 0)
        say("%ld", call(code));
    else
        say("stuck");
    say("%d", tries);
}
/* The same for memory that is not there. */
static void on_absent(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    CHECK(info->si_addr == code);
    mprotect(code, PAGE, RW);
    put_constant(code, 9 + (uint32_t)tries++);
    mprotect(code, PAGE, RX);
}
SMC(loaded_when_needed, "9 10 11", "9 9 9") {
    struct sigaction action = {.sa_sigaction = on_absent, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    code = pages(1, PROT_NONE);
    for (int i = 0; i < 3; i++) {
        say("%ld", call(code));
        mprotect(code, PAGE, PROT_NONE);
    }
}
/* The handler itself is made, and made again: it adds a number to a word. */
static volatile uint32_t word;
SMC(handler_made_anew, "1 11 111", "1 2 3") {
    code = pages(1, RWX);
    static const uint32_t numbers[] = {1, 10, 100};
    for (int i = 0; i < 3; i++) {
        uint64_t address = (uint64_t)&word;
        memcpy(code, "\x48\xb8", 2); /* movabs $word, %rax; addl $number, (%rax); ret */
        memcpy(code + 2, &address, 8);
        memcpy(code + 10, "\x81\x00", 2);
        memcpy(code + 12, &numbers[i], 4);
        code[16] = 0xc3;
        struct sigaction action = {.sa_handler = (void (*)(int))code};
        sigaction(SIGUSR1, &action, NULL);
        raise(SIGUSR1);
        say("%u", word);
    }
}
/* And so is what a thread begins with. */
SMC(start_made_anew, "1 2 3", "1 1 1") {
    code = pages(1, RWX);
    for (uint32_t i = 1; i <= 3; i++) {
        put_constant(code, i);
        pthread_t thread;
        void *result;
        CHECK(pthread_create(&thread, NULL, (void *(*)(void *))code, NULL) == 0);
        CHECK(pthread_join(thread, &result) == 0);
        say("%ld", (long)result);
    }
}
