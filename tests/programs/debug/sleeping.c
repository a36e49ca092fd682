// Many threads that sleep for a second, again and again, and must not be woken before; until the input ends.
// With "filtered", a filter kills the process for restart_syscall.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 48 };

static void *sleep_on(void *unused) {
    for (;;) {
        struct timespec second = {1, 0};
        if (nanosleep(&second, NULL) != 0) {
            printf("nanosleep: %s\n", strerror(errno));
            fflush(stdout);
            _exit(1);
        }
    }
    return unused;
}

static void filter(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = {sizeof steps / sizeof *steps, steps};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all);
}

int main(int count, char **arguments) {
    pthread_t thread;
    if (count > 1 && !strcmp(arguments[1], "filtered")) filter();
    for (int i = 0; i < THREADS; i++) pthread_create(&thread, NULL, sleep_on, NULL);
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {}
    puts("well");
    fflush(stdout);
    _exit(0);
}
