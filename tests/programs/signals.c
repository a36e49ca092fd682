/* Signals as fast as the timer can, with counted functions in the handler and outside of it; see lockstep.h.
 * Signals come only while the workers work, or a tick would count when nobody looks. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define FUNCTIONS(X) X(on_tick) X(in_handler) X(in_both) X(outside) X(on_stack) X(sleeps)
static void mask(int how);
#define BEFORE_WORK() mask(SIG_UNBLOCK)
#define AFTER_WORK() mask(SIG_BLOCK)
#include "lockstep.h"

static void mask(int how) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigaddset(&set, SIGPROF);
    pthread_sigmask(how, &set, NULL);
}

APART uint64_t in_both(uint64_t x) {
    COUNT(in_both);
    return x * 2654435761u + 1;
}
APART uint64_t in_handler(uint64_t x) {
    COUNT(in_handler);
    return in_both(x) ^ x;
}
APART void on_tick(int number) {
    COUNT(on_tick);
    int kept = errno;
    in_handler((uint64_t)number);
    errno = kept;
}
/* The same on a stack of its own, with the interrupted registers in reach. */
APART void on_stack(int number, siginfo_t *info, void *context) {
    COUNT(on_stack);
    int kept = errno;
    check(info->si_signo == number && context != NULL, "a signal came without its story");
    in_both((uint64_t)number);
    errno = kept;
}
APART uint64_t outside(uint64_t x) {
    COUNT(outside);
    uint64_t sum = 0;
    for (int i = 0; i < 8; i++) sum += in_both(x + (unsigned)i);
    return sum;
}
APART int sleeps(void) {
    COUNT(sleeps);
    struct timespec brief = {0, 1000};
    return nanosleep(&brief, NULL);
}

static void one_round(unsigned long number) {
    static __thread char *stack;
    if (!stack) {
        stack_t alternative = {.ss_sp = stack = malloc(65536), .ss_size = 65536};
        check(sigaltstack(&alternative, NULL) == 0, "no stack for signals");
    }
    uint64_t expected = 0;
    for (uint64_t i = 0; i < 8; i++) expected += (number + i) * 2654435761u + 1;
    errno = EILSEQ;
    check(outside(number) == expected, "a computation changed its result");
    check(errno == EILSEQ, "errno changed");
    if (number % 16 == 0) check(sleeps() == 0 || errno == EINTR, "sleep");
}

int main(int argc, char **argv) {
    mask(SIG_BLOCK);
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct sigaction other = {.sa_sigaction = on_stack, .sa_flags = SA_RESTART | SA_ONSTACK | SA_SIGINFO};
    sigaction(SIGPROF, &other, NULL);
    struct itimerval often = {{0, 50}, {0, 50}}, used = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, NULL);
    setitimer(ITIMER_PROF, &used, NULL);
    return lockstep_main(argc, argv);
}
