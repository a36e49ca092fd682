/* Loops that go round as often as they should, while signals come as fast as the timer can. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static volatile sig_atomic_t ticks;
static void on_tick(int number) {
    (void)number;
    ticks++;
}

static unsigned plain(unsigned rounds) {
    unsigned sum;
    __asm__ volatile("xor %0, %0\n 1: add $3, %0\n dec %1\n jnz 1b" : "=&r"(sum), "+r"(rounds) : : "cc");
    return sum;
}
/* The same with flags that are needed where the branch leads. */
static unsigned with_flags(unsigned rounds) {
    unsigned sum;
    __asm__ volatile("xor %0, %0\n xor %%edx, %%edx\n test %1, %1\n"
                     "1: setne %%dl\n add %%edx, %0\n dec %1\n jnz 1b"
                     : "=&r"(sum), "+r"(rounds) : : "cc", "edx");
    return sum;
}

int main(int argc, char **argv) {
    int wanted = argc > 1 ? atoi(argv[1]) : 1000;
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    while (ticks < wanted)
        for (unsigned rounds = 1; rounds < 60; rounds++)
            if (plain(rounds) != 3 * rounds || with_flags(rounds) != rounds) {
                printf("%u rounds are not that many\n", rounds);
                return 1;
            }
    setitimer(ITIMER_REAL, &never, NULL);
    puts("well");
    return 0;
}
