/* Code that can be executed but not read, which takes protection keys. Each case calls `counted` before and after it
 * has been there. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { PAGE = 4096 };

APART void counted(void) { asm volatile(""); }
static void count(void) {
    for (int i = 0; i < 10; i++) counted();
}

typedef int function(void);
static const uint8_t seven[] = {0xb8, 7, 0, 0, 0, 0xc3}; /* mov $7, %eax; ret */

/* Two pages that can be written, with a function at an offset. */
static uint8_t *pages_with(size_t offset, const void *code, size_t length) {
    uint8_t *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    memcpy(at + offset, code, length);
    return at;
}
static function *hidden(void) {
    uint8_t *at = pages_with(0, seven, sizeof seven);
    CHECK(mprotect(at, 2 * PAGE, PROT_EXEC) == 0);
    return (function *)at;
}

CASE(by_mprotect) {
    function *call = hidden();
    count();
    SAME(call(), 7);
    count();
}
CASE(once_readable) {
    uint8_t *at = pages_with(0, seven, sizeof seven);
    CHECK(mprotect(at, 2 * PAGE, PROT_READ | PROT_EXEC) == 0);
    SAME(((function *)at)(), 7);
    CHECK(mprotect(at, 2 * PAGE, PROT_EXEC) == 0);
    count();
    SAME(((function *)at)(), 7);
    count();
}
/* Its first instruction begins where it can be read. */
CASE(across_pages) {
    uint8_t *at = pages_with(PAGE - 2, seven, sizeof seven);
    CHECK(mprotect(at, PAGE, PROT_READ | PROT_EXEC) == 0 && mprotect(at + PAGE, PAGE, PROT_EXEC) == 0);
    count();
    SAME(((function *)(at + PAGE - 2))(), 7);
    count();
}
/* The kernel takes it for readable. */
CASE(by_a_key) {
    uint8_t *at = pages_with(0, seven, sizeof seven);
    int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    CHECK(key > 0 && pkey_mprotect(at, 2 * PAGE, PROT_READ | PROT_EXEC, key) == 0);
    count();
    SAME(((function *)at)(), 7);
    count();
}
static int handled;
CASE(as_a_handler) {
    uint8_t handler[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0x00, 0xc3}; /* movabs ..., %rax; incl (%rax); ret */
    int *address = &handled;
    memcpy(handler + 2, &address, 8);
    uint8_t *at = pages_with(0, handler, sizeof handler);
    CHECK(mprotect(at, 2 * PAGE, PROT_EXEC) == 0);
    struct sigaction action = {.sa_handler = (void (*)(int))at, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    count();
    raise(SIGUSR1);
    SAME(handled, 1);
    count();
}
static atomic_int ended;
static void *computes(void *unused) {
    while (!ended) {
        uint64_t value = 1;
        for (int i = 0; i < 1000; i++) value = value * 3 + (uint64_t)i;
        SAME(value, 0xeb9c385ac8a66ff5u);
    }
    return unused;
}
CASE(beside_threads) {
    function *call = hidden();
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, computes, NULL) == 0);
    count();
    SAME(call(), 7);
    count();
    ended = 1;
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}
CASE(in_a_child) {
    function *call = hidden();
    count();
    pid_t child = fork();
    if (child == 0) {
        int got = call();
        count();
        _exit(got);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    SAME(WEXITSTATUS(status), 7);
}

CASE(in_borrowed_memory) {
    function *call = hidden();
    count();
    pid_t child = vfork();
    if (child == 0) {
        int got = call();
        count();
        _exit(got);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    SAME(WEXITSTATUS(status), 7);
}
/* A handler may use no keys but the first, whatever the program could. */
static int key;
static unsigned in_handler;
static void looks(int number) { in_handler = (unsigned)pkey_get(key) + (number != SIGUSR1); }
CASE(keys_in_a_handler) {
    key = pkey_alloc(0, 0);
    CHECK(key > 0 && signal(SIGUSR1, looks) != SIG_ERR && pkey_get(key) == 0);
    count();
    raise(SIGUSR1);
    count();
    SAME(pkey_get(key), 0);
    SAME(in_handler, PKEY_DISABLE_ACCESS);
}

/* --- what is not code that could be executed: the program has its own fault, and stays --- */

static sigjmp_buf back;
static int caught, code;
static void *faulted_at;
static void jumps_back(int number, siginfo_t *info, void *context) {
    CHECK(context);
    caught = number;
    code = info->si_code;
    faulted_at = info->si_addr;
    siglongjmp(back, 1);
}
static void expect(int number, int expected, function *call, const void *address) {
    struct sigaction action = {.sa_sigaction = jumps_back, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
    count();
    if (sigsetjmp(back, 1) == 0) {
        call();
        CHECK(!"no fault");
    }
    SAME(caught, number);
    SAME(code, expected);
    SAME(faulted_at, address);
    count();
}
CASE(fault_unmapped) {
    uint8_t *at = pages_with(0, seven, sizeof seven);
    CHECK(munmap(at, 2 * PAGE) == 0);
    expect(SIGSEGV, SEGV_MAPERR, (function *)at, at);
}
CASE(fault_not_executable) {
    uint8_t *at = pages_with(0, seven, sizeof seven);
    expect(SIGSEGV, SEGV_ACCERR, (function *)at, at);
}
CASE(fault_nothing) {
    uint8_t *at = pages_with(0, seven, sizeof seven);
    CHECK(mprotect(at, 2 * PAGE, PROT_NONE) == 0);
    expect(SIGSEGV, SEGV_ACCERR, (function *)at, at);
}
CASE(fault_across_pages) {
    uint8_t *at = pages_with(PAGE - 2, seven, sizeof seven);
    CHECK(mprotect(at, PAGE, PROT_READ | PROT_EXEC) == 0 && munmap(at + PAGE, PAGE) == 0);
    expect(SIGSEGV, SEGV_MAPERR, (function *)(at + PAGE - 2), at + PAGE);
}
CASE(fault_beyond_a_file) {
    int file = memfd_create("code", 0);
    CHECK(file >= 0 && ftruncate(file, PAGE) == 0);
    uint8_t *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    CHECK(at != MAP_FAILED);
    expect(SIGBUS, BUS_ADRERR, (function *)(at + PAGE), at + PAGE);
}

/* --- the kernel's own page --- */

static int old_time(void) {
    time_t before = time(NULL) - 1, now = ((time_t(*)(time_t *))0xffffffffff600400)(NULL);
    return now >= before && now < before + 100;
}
CASE(vsyscall) {
    count();
    for (int i = 0; i < 10; i++) CHECK(old_time());
    count();
}
typedef int old_function(void *, void *);
static void print_fault_of(uint64_t address, void *argument) {
    struct sigaction action = {.sa_sigaction = jumps_back, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    count();
    if (sigsetjmp(back, 1) == 0) ((old_function *)address)(argument, NULL);
    printf("%d %d %p\n", caught, code, faulted_at);
    count();
}
CASE(fault_vsyscall) { print_fault_of(0xffffffffff600404, NULL); }
CASE(fault_vsyscall_argument) { print_fault_of(0xffffffffff600000, (void *)16); }
