// Signals that a program sends to itself, and faults that it mends, for tests/gdb to walk through.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

volatile long scratch; // set
long total;            // watch
static volatile int nested;
static volatile char *guarded;
static sigjmp_buf back;
static char stack[65536];

int twice(int number) { // call
    return number * 2;
}

static void on_plain(int number) {
    total += number;
    if (nested > 0) {
        nested--;
        raise(SIGUSR2);
    }
}

static void on_info(int number, siginfo_t *info, void *context) {
    const ucontext_t *where = context;
    int value = info->si_value.sival_int;
    total += number + value + (where->uc_mcontext.gregs[REG_RIP] != 0);
}

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    total += number;
    if (info->si_addr == (void *)guarded) mprotect((void *)guarded, 4096, PROT_READ | PROT_WRITE);
}

// Steps over the instruction that divided, which is two bytes long.
static void on_division(int number, siginfo_t *info, void *context) {
    (void)info;
    ucontext_t *where = context;
    where->uc_mcontext.gregs[REG_RIP] += 2;
    total += number;
}

static void on_escape(int number) {
    siglongjmp(back, number);
}

static int divide(int by) {
    int result = 7;
    __asm__ volatile("xor %%edx, %%edx\n\tidiv %1" : "+a"(result) : "r"(by) : "edx", "cc");
    return result;
}

static void handle(int number, void (*plain)(int), void (*info)(int, siginfo_t *, void *)) {
    struct sigaction action = {.sa_flags = SA_ONSTACK | (info ? SA_SIGINFO : 0)};
    if (info)
        action.sa_sigaction = info;
    else
        action.sa_handler = plain;
    sigaction(number, &action, NULL);
}

static int escape(int round) {
    int number = sigsetjmp(back, 1);
    if (number) return number;
    kill(getpid(), SIGHUP);
    return round;
}

static void blocked(int value) {
    sigset_t some, before;
    sigemptyset(&some);
    sigaddset(&some, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &some, &before);
    sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = value});
    sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = value + 1});
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void do_round(int round) {
    nested = round % 3;
    raise(SIGUSR1);
    blocked(round);
    guarded[0] = (char)round;
    total += guarded[0];
    mprotect((void *)guarded, 4096, PROT_NONE);
    total += divide(round % 2);
    total += escape(round) + twice(round);
    scratch += round;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&own, NULL);
    guarded = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    handle(SIGUSR1, on_plain, NULL);
    handle(SIGUSR2, on_plain, NULL);
    handle(SIGHUP, on_escape, NULL);
    handle(SIGRTMIN, NULL, on_info);
    handle(SIGSEGV, NULL, on_fault);
    handle(SIGFPE, NULL, on_division);
    for (int round = 0; round < rounds; round++) {
        do_round(round);
    }
    printf("%ld\n", total);
    return 0;
}
