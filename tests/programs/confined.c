// A program that allows itself fewer system calls while it is measured: those that weft's snippets make, and that
// the program itself does not, end it.
//   confined later      a filter over all threads after the first calls
//   confined mild       likewise, but threads may ask for their ids
//   confined strict     seccomp's strict mode, likewise
//   confined few        a filter that allows three calls; signals come under it
//   confined early      the filter from the start; waits for the end of its input
//   confined child      a forked child has the filter; it may ask for its process id
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS = 10 };

static volatile int is_confined;
static volatile long total;

__attribute__((noinline)) void work(const long *place) { total += *place; }

static void work_often(void) {
    static const long one = 1;
    for (int i = 0; i < CALLS; i++) work(&one);
}

static void *wait_and_work(void *unused) {
    while (!is_confined) {}
    work_often();
    return unused;
}

#define KILL(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static int confine(int is_mild) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILL(is_mild ? SYS_getppid : SYS_gettid),
        KILL(SYS_clock_gettime),
        KILL(SYS_process_vm_readv),
        KILL(SYS_nanosleep),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

static volatile int alarms;
static void on_alarm(int number) {
    (void)number;
    alarms++;
}

#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int allow_few(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write),
        ALLOW(SYS_exit),
        ALLOW(SYS_rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    struct itimerval often = {{0, 1000}, {0, 1000}};
    return signal(SIGALRM, on_alarm) == SIG_ERR || setitimer(ITIMER_REAL, &often, NULL) ||
           prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv) {
    const char *mode = argc == 2 ? argv[1] : "";
    if (!strcmp(mode, "strict")) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 1;
        work_often();
        write(1, "unharmed\n", 9);
        syscall(SYS_exit, 7);
    }
    if (!strcmp(mode, "few")) {
        if (allow_few()) return 1;
        while (alarms < 30) {}
        work_often();
        write(1, "unharmed\n", 9);
        syscall(SYS_exit, 7);
    }
    if (!strcmp(mode, "child")) {
        pid_t child = fork();
        if (child == 0) {
            if (confine(0)) return 1;
            work_often();
            write(1, "unharmed\n", 9);
            return 7;
        }
        int status;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_and_work, NULL) || confine(!strcmp(mode, "mild"))) return 1;
    if (!strcmp(mode, "early")) {
        char byte;
        puts("ready");
        fflush(stdout);
        if (read(0, &byte, 1) != 0) return 1;
    }
    is_confined = 1;
    work_often();
    pthread_join(thread, NULL);
    puts("unharmed");
    return 7;
}
