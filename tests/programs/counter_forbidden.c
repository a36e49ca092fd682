// Forbids itself to read the time stamp counter, and calls a function; with an argument it waits in between.
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile long sum;
__attribute__((noinline)) void work(void) {
    for (long i = 0; i < 1000; i++) sum += i % 7;
}

int main(int argc, char **argv) {
    for (int i = 0; i < 5; i++) work();
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV)) return 1;
    if (argc > 1 && !strcmp(argv[1], "waits")) {
        char byte;
        if (write(1, "ready\n", 6) < 0 || read(0, &byte, 1) < 0) return 1;
    }
    for (int i = 0; i < 10; i++) work();
    int mode = 0;
    prctl(PR_GET_TSC, &mode);
    printf("%d\n", mode);
    return sum == 0;
}
