// Says whether it has heard of a signal that comes once it may begin: while it waits or works, and
// with a handler or without.
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

volatile int begins; // set
static volatile sig_atomic_t heard;

static void on_alarm(int number) {
    heard = number;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    int waits = argc > 1 && strcmp(argv[1], "waits") == 0;
    if (argc > 2 && strcmp(argv[2], "handles") == 0) signal(SIGALRM, on_alarm);
    puts("ready");
    fflush(stdout);
    while (!begins) usleep(1000);
    double end = now() + 1;
    ualarm(200000, 0);
    while (!heard && now() < end) {
        if (waits) poll(NULL, 0, 1000);
    }
    puts(heard ? "heard" : "not heard");
    return 0;
}
