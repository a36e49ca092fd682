/* A program that does a bit of everything, in a thread each, until its standard input ends; and checks all the
 * while that nothing is lost: for those who take it over and let it go meanwhile. */
#define _GNU_SOURCE
#include "made.h"
#include <asm/prctl.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

static atomic_int ended;

/* --- registers --- */

APART static uint64_t mix(uint64_t seed, int rounds) {
    for (int i = 0; i < rounds; i++) seed = (seed ^ seed >> 29) * 0xbf58476d1ce4e5b9u + (uint64_t)i;
    return seed;
}
static void *computes(void *unused) {
    uint64_t right = mix(1, 20000);
    while (!ended) SAME(mix(1, 20000), right);
    return unused;
}
/* All vector registers of the first sixteen hold something, for a while that has no system call in it. */
static void *keeps_vectors(void *unused) {
    while (!ended) {
        uint64_t low, high, sum = 0;
        asm volatile("mov $300000, %%ecx\n"
                     "movq %2, %%xmm0\n movq %2, %%xmm7\n movq %2, %%xmm15\n"
                     "1: paddq %%xmm0, %%xmm7\n psubq %%xmm0, %%xmm15\n"
                     "dec %%ecx\n jnz 1b\n"
                     "movq %%xmm7, %0\n movq %%xmm15, %1\n"
                     : "=r"(low), "=r"(high)
                     : "r"(3ul)
                     : "rcx", "xmm0", "xmm7", "xmm15", "cc");
        sum = low + high;
        SAME(sum, 6);
        SAME(low, 3 * 300001ul);
    }
    return unused;
}
/* They outlive system calls, too, and so does the base of gs. */
static void *keeps_over_calls(void *unused) {
    static uint64_t own[2] = {0x1234, 0x5678};
    CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, own) == 0);
    while (!ended) {
        uint64_t kept, through;
        struct timespec little = {0, 300000};
        asm volatile("movq %2, %%xmm3\n"
                     "mov %3, %%eax\n mov %4, %%rdi\n xor %%esi, %%esi\n syscall\n"
                     "movq %%xmm3, %0\n mov %%gs:8, %1\n"
                     : "=&r"(kept), "=&r"(through)
                     : "r"(77ul), "i"(SYS_nanosleep), "r"(&little)
                     : "rax", "rcx", "rdi", "rsi", "r11", "xmm3", "memory");
        SAME(kept, 77);
        SAME(through, 0x5678);
    }
    return unused;
}
typedef uint64_t steps(uint64_t);
static uint64_t one(uint64_t x) { return x + 1; }
static uint64_t two(uint64_t x) { return x * 2; }
static uint64_t three(uint64_t x) { return x ^ 3; }
static void *calls_indirectly(void *unused) {
    steps *volatile table[] = {one, two, three};
    uint64_t right = 0;
    for (int round = 0; !ended; round++) {
        uint64_t value = 5;
        for (int i = 0; i < 3000; i++) value = table[i % 3](value);
        if (round == 0) right = value;
        SAME(value, right);
    }
    return unused;
}

/* --- the kernel: nothing is interrupted that would not be --- */

static void *sleeps(void *unused) {
    while (!ended) {
        struct timespec little = {0, 2000000};
        CHECK(nanosleep(&little, NULL) == 0);
        struct timeval before, after;
        gettimeofday(&before, NULL);
        CHECK(poll(NULL, 0, 3) == 0);
        gettimeofday(&after, NULL);
        CHECK((after.tv_sec - before.tv_sec) * 1000000 + after.tv_usec - before.tv_usec >= 2900);
    }
    return unused;
}
static void *waits_for_events(void *unused) {
    int set = epoll_create1(0);
    struct epoll_event event;
    while (!ended) CHECK(epoll_wait(set, &event, 1, 4) == 0);
    return unused;
}
static void *waits_for_a_word(void *unused) {
    static atomic_int word;
    while (!ended) {
        struct timespec little = {0, 3000000};
        CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &little, NULL, 0) == -1 && errno == ETIMEDOUT);
    }
    return unused;
}
static int ends[2];
static void *reads(void *unused) {
    uint32_t expected = 0, got;
    while (read(ends[0], &got, sizeof got) == sizeof got) SAME(got, expected++);
    return unused;
}
static void *writes(void *unused) {
    for (uint32_t next = 0; !ended; next++) {
        CHECK(write(ends[1], &next, sizeof next) == sizeof next);
        if (next % 64 == 0) usleep(500);
    }
    close(ends[1]);
    return unused;
}

/* --- signals --- */

static _Thread_local volatile long handled;
static _Thread_local char *stack;
enum { STACK = 64 << 10 };
static void on_timer(int number) {
    (void)number;
    char here;
    CHECK(&here > stack && &here < stack + STACK);
    handled++;
}
static void *is_told(void *unused) {
    stack = malloc(STACK);
    stack_t alternate = {.ss_sp = stack, .ss_size = STACK}, now;
    CHECK(sigaltstack(&alternate, NULL) == 0);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1, ._sigev_un._tid = gettid()};
    struct itimerspec often = {{0, 1000000}, {0, 1000000}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
    uint64_t right = mix(2, 5000);
    sigset_t blocked, mask;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGSEGV);
    sigaddset(&blocked, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    while (!ended) {
        SAME(mix(2, 5000), right);
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        CHECK(sigismember(&mask, SIGSEGV) && sigismember(&mask, SIGUSR2) && !sigismember(&mask, SIGUSR1));
        CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack && now.ss_size == STACK);
    }
    timer_delete(timer);
    CHECK(handled > 0);
    return unused;
}

/* --- threads, processes, code --- */

static void *does_nothing(void *unused) { return unused; }
static void *starts_threads(void *unused) {
    while (!ended) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, does_nothing, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        usleep(500);
    }
    return unused;
}
static void *starts_processes(void *unused) {
    while (!ended) {
        pid_t child = fork();
        if (child == 0) _exit(mix(3, 1000) == 0 ? 1 : 7);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
        usleep(3000);
    }
    return unused;
}
static void *makes_code(void *unused) {
    uint8_t *code = pages(1, RWX);
    for (uint32_t value = 0; !ended; value++) {
        put_constant(code, value);
        serialize();
        SAME(call(code), value);
        usleep(200);
    }
    return unused;
}

CASE(a_bit_of_everything) {
    static void *(*const all[])(void *) = {
        computes,         keeps_vectors, keeps_over_calls, calls_indirectly, sleeps,           waits_for_events,
        waits_for_a_word, reads,         writes,           is_told,          starts_threads,   starts_processes,
        makes_code,
    };
    enum { COUNT = sizeof all / sizeof *all };
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_ONSTACK | SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && pipe(ends) == 0);
    pthread_t threads[COUNT];
    for (int i = 0; i < COUNT; i++) CHECK(pthread_create(&threads[i], NULL, all[i], NULL) == 0);
    puts("here");
    fflush(stdout);
    char byte;
    CHECK(read(0, &byte, 1) == 0);
    ended = 1;
    for (int i = 0; i < COUNT; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}
