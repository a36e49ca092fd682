/* Functions that are called in different ways, to be replaced and wrapped. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

__attribute__((noinline)) long secret(long a, long b) {
    __asm__ volatile("");
    return a * 100 + b;
}

__attribute__((noinline)) long many(long a, long b, long c, long d, long e, long f, long g, long h) {
    __asm__ volatile("");
    return a + b + c + d + e + f + 10 * g + 100 * h;
}

__attribute__((noinline)) long other(long a) {
    __asm__ volatile("");
    return a + 7;
}

__attribute__((noinline)) long passes_on(long a) {
    return other(a + 1);
}

long (*volatile by_pointer)(long, long) = secret;
static volatile sig_atomic_t ticks;

static void tick(int signal) {
    (void)signal;
    ticks++;
}

int main(int count, char **words) {
    if (count > 1) {
        /* Under signals, many times. */
        struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
        struct itimerval often = {{0, 500}, {0, 500}};
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &often, NULL);
        long sum = 0;
        for (long i = 0; i < atol(words[1]); i++) sum += by_pointer(i, 1);
        printf("%ld %d\n", sum, (int)ticks);
        return 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    while (getchar() == '\n') {
        const char *name = getenv("NAME");
        printf("%ld %ld %ld %ld %s %ld\n", secret(1, 2), by_pointer(3, 4),
               many(1, 1, 1, 1, 1, 1, 1, 1), passes_on(1), name ? name : "nobody",
               (long)time(NULL) / 1000);
    }
    return 0;
}
