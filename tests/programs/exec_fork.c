/* A program that does on demand what replaces or copies a process.
 *
 * Prints "ready" and obeys its standard input:
 *   fork   forks a child, which waits for the end of its life; prints its id
 *   exec   becomes itself anew
 *   regs   prints "regs" and spins with known values in its registers, until it gets SIGUSR1
 * The end of the input ends it with 7. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile sig_atomic_t done;

static void on_signal(int signal) {
    (void)signal;
    done = 1;
}

int main(int argc, char **argv) {
    (void)argc;
    signal(SIGUSR1, on_signal);
    setvbuf(stdin, NULL, _IONBF, 0);
    puts("ready");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "fork\n")) {
            pid_t child = fork();
            if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                pause();
                _exit(0);
            }
            printf("%d\n", child);
        } else if (!strcmp(line, "exec\n")) {
            execv("/proc/self/exe", argv);
        } else if (!strcmp(line, "regs\n")) {
            printf("regs\n");
            fflush(stdout);
            asm volatile("mov $0x1122334455667788, %%r13\n movq %%r13, %%xmm9\n"
                         "1: cmpl $0, %0\n je 1b\n" ::"m"(done)
                         : "r13", "xmm9", "cc");
        }
        fflush(stdout);
    }
    return 7;
}
