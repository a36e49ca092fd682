// Forbids itself system calls, in ways that leave none to the clone engine, and goes on.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile char selector;
static volatile int caught;

static void on_call(int number) {
    (void)number;
    selector = 0;
    caught++;
}

static volatile long sum;
static __attribute__((noinline)) void work(void) {
    for (long i = 0; i < 1000; i++) sum += i % 7;
}

static void say(const char *text) { syscall(SYS_write, 1, text, strlen(text)); }

int main(int argc, char **argv) {
    (void)argc;
    if (!strcmp(argv[1], "dispatch")) {
        signal(SIGSYS, on_call);
        // PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, and no code that is excepted
        if (prctl(59, 1, 0, 0, &selector)) return 1;
        for (int i = 0; i < 10; i++) {
            work();
            selector = 1;
            syscall(SYS_getppid);
        }
        say(caught == 10 ? "caught\n" : "missed\n");
    } else if (!strcmp(argv[1], "strict")) {
        work();
        if (prctl(PR_SET_SECCOMP, 1)) return 1;
        work();
        say("strict\n");
    } else {
        if (syscall(SYS_seccomp, 0, 0, NULL)) return 1;
        work();
        say("strict\n");
    }
    syscall(SYS_exit, sum == 0);
}
