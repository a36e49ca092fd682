/* A loop of short instructions that a signal interrupts all the time, whose handler takes its time: when
 * somebody looks, the thread is in the handler, and will return to the middle of the loop. Works until its
 * input ends. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static void doze(int number) {
    (void)number;
    struct timespec little = {0, 2000000};
    nanosleep(&little, NULL);
}

__attribute__((noipa)) unsigned long spin(unsigned long start, long rounds) {
    unsigned long a = start, b = 1;
    /* A window over the first of these has the loop jump into its middle. */
    asm volatile("nop\n"
                 "1:\n"
                 "xor %1, %0\n inc %1\n rol %0\n inc %0\n xor %0, %1\n ror %1\n"
                 "dec %2\n jnz 1b\n"
                 : "+r"(a), "+r"(b), "+r"(rounds)
                 :
                 : "cc");
    return a ^ b;
}

int main(void) {
    enum { ROUNDS = 300000 };
    unsigned long right = spin(7, ROUNDS);
    struct sigaction action = {.sa_handler = doze};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 6000}, {0, 6000}};
    setitimer(ITIMER_REAL, &often, NULL);
    puts("here");
    fflush(stdout);
    struct pollfd input = {0, POLLIN, 0};
    while (poll(&input, 1, 0) <= 0)
        if (spin(7, ROUNDS) != right) return puts("broken"), 1;
    puts("well");
}
