/* Computes for a while in one function, a third of that in another, and naps; until its input ends. Prints how much of its
   time on a processor it spent in the first, by its own clock. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <time.h>

static double own_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void longer(void)
{
    for (volatile int i = 0; i < 3000000; i++)
        ;
}

__attribute__((noinline)) static void shorter(void)
{
    for (volatile int i = 0; i < 1000000; i++)
        ;
}

int main(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    double first = 0;
    puts("ready");
    fflush(stdout);
    while (poll(&input, 1, 0) == 0) {
        double before = own_time();
        longer();
        first += own_time() - before;
        shorter();
        nanosleep(&(struct timespec){0, 7000000}, NULL);
    }
    printf("%f\n", first / own_time());
    return 0;
}
