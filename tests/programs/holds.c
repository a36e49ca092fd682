/* Traces a child that runs all the time, as a thread of weft's would by its name, until its input ends; prints the child. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <signal.h>
#include <unistd.h>

int main(void) {
    char byte;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) __asm__ volatile("");
    }
    prctl(PR_SET_NAME, "weft-tracer");
    if (ptrace(PTRACE_SEIZE, child, 0, 0)) abort();
    printf("%d\n", child);
    fflush(stdout);
    if (read(0, &byte, 1) < 0) abort();
    kill(child, SIGKILL);
    return 0;
}
