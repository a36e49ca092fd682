// A parent that forks children, which work and end, for tests/gdb to follow the parent.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

volatile long scratch; // set
long total;            // watch

int twice(int number) { // call
    return number * 2;
}

static long work(long number) {
    long sum = 0;
    for (int i = 0; i < 5; i++) sum += twice((int)number) + i;
    return sum;
}

static long ask_child(int round) {
    int ends[2];
    long answer = 0;
    if (pipe(ends)) abort();
    pid_t child = fork();
    if (child == 0) {
        answer = work(round);
        _exit(write(ends[1], &answer, sizeof answer) == sizeof answer ? round % 100 : 255);
    }
    close(ends[1]);
    if (read(ends[0], &answer, sizeof answer) != sizeof answer) abort();
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    return answer + WEXITSTATUS(status);
}

static void do_round(int round) {
    total += work(round);
    if (round % 4 == 0) total += ask_child(round);
    scratch += round;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    // When a child ends is a matter of luck. GDB counts a breakpoint twice that it steps over just then.
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    for (int round = 0; round < rounds; round++) {
        do_round(round);
    }
    printf("%ld\n", total);
    return 0;
}
