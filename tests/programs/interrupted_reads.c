/* Reads from its standard input while a timer interrupts it, and says how often both happened. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t ticks;

static void tick(int signal) {
    (void)signal;
    ticks++;
}

int main(void) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &often, NULL);
    int reads = 0;
    char byte;
    do reads++;
    while (read(0, &byte, 1) == 1);
    printf("%d %d\n", reads, (int)ticks);
    return 0;
}
