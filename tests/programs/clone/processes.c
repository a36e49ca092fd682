/* Processes: forks in all places, programs that become others, and what is left of them. */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

extern char **environ;

static int result_of(pid_t pid) {
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
APART static int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

/* Memory is the child's own, and the parent's stays. */
CASE(forks) {
    enum { SIZE = 1 << 16 };
    uint32_t *memory = malloc(SIZE * 4);
    for (int i = 0; i < SIZE; i++) memory[i] = (uint32_t)i * 2654435761u;
    int code = 0;
    for (long round = 0; round < or_else(amount, 100); round++) {
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < SIZE; i += 7) CHECK(memory[i] == (uint32_t)i * 2654435761u);
            for (int i = 0; i < SIZE; i += 512) memory[i] = 1;
            CHECK(getpid() == gettid() && fibonacci(12) == 144);
            pid_t grandchild = round % 8 == 0 ? fork() : -1;
            if (grandchild == 0) _exit(memory[512] == 1 ? 3 : 4);
            if (grandchild > 0) CHECK(result_of(grandchild) == 3);
            _exit((int)(round % 100));
        }
        code += result_of(child);
        for (int i = 0; i < SIZE; i += 512) CHECK(memory[i] == (uint32_t)i * 2654435761u);
    }
    printf("%d\n", code);
}
CASE(forks_together) {
    enum { MANY = 30 };
    pid_t children[MANY];
    int sum = 0;
    for (int i = 0; i < MANY; i++)
        if ((children[i] = fork()) == 0) _exit(fibonacci(15 + i % 3) % 256 == 0 ? 1 : i);
    for (int i = 0; i < MANY; i++) sum += result_of(children[i]);
    printf("%d\n", sum);
}
CASE(exit_after_fork) {
    printf("both ");
    pid_t child = fork();
    if (child == 0) exit(0); /* what is in the buffer is printed twice */
    CHECK(result_of(child) == 0);
    puts("end");
}

static volatile int vfork_shared;
CASE(vfork) {
    for (volatile int i = 0; i < 50; i++) {
        pid_t child = vfork();
        if (child == 0) {
            vfork_shared = i;
            _exit(i);
        }
        CHECK(vfork_shared == i);
        CHECK(result_of(child) == i);
        child = vfork();
        if (child == 0) {
            execl("/bin/true", "true", NULL);
            _exit(99);
        }
        CHECK(result_of(child) == 0);
        child = vfork();
        if (child == 0) {
            execl("/no/such/file", "none", NULL);
            _exit(errno == ENOENT ? 77 : 78);
        }
        CHECK(result_of(child) == 77);
    }
}
/* A child that ends by a fault has borrowed its parent's memory, and must leave it in order. */
CASE(faults_after_vfork) {
    static volatile int *volatile nowhere = NULL;
    for (volatile int i = 0; i < 6; i++) {
        pid_t child = vfork();
        if (child == 0) {
            if (i % 3 == 0) *nowhere = 1;
            if (i % 3 == 1) asm volatile("ud2");
            if (i % 3 == 2) asm volatile("xor %%esp, %%esp\n push %%rax" : : : "memory");
            _exit(0);
        }
        printf("%d ", result_of(child));
    }
    puts("");
}
CASE(spawn) {
    for (int i = 0; i < 20; i++) {
        pid_t child;
        char *const words[] = {"sh", "-c", "exit 23", NULL};
        CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ) == 0);
        CHECK(result_of(child) == 23);
        CHECK(posix_spawnp(&child, "no-such-program-anywhere", NULL, NULL, words, environ) == ENOENT);
    }
    CHECK(system("exit 9") == 9 << 8);
    FILE *pipe = popen("echo from a pipe", "r");
    char line[64];
    CHECK(fgets(line, sizeof line, pipe) && pclose(pipe) == 0);
    fputs(line, stdout);
}

static void *forks_in_thread(void *number) {
    for (int i = 0; i < 15; i++) {
        pid_t child = fork();
        if (child == 0) {
            CHECK(getpid() == gettid());
            _exit(fibonacci(10) == 55 ? (int)(long)number : 99);
        }
        CHECK(result_of(child) == (int)(long)number);
    }
    return NULL;
}
CASE(fork_from_threads) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, forks_in_thread, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}
/* The child of a program with many threads has one, and can have more. */
static atomic_int stop;
static void *spins(void *unused) {
    while (!stop) sched_yield();
    return unused;
}
CASE(threads_after_fork) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, spins, NULL);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            stop = 1;
            pthread_t own;
            CHECK(pthread_create(&own, NULL, spins, NULL) == 0 && pthread_join(own, NULL) == 0);
            _exit(8);
        }
        CHECK(result_of(child) == 8);
    }
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static volatile int handled;
static void fork_in_handler(int number) {
    (void)number;
    pid_t child = fork();
    if (child == 0) {
        if (handled % 2) return; /* the child leaves the handler, too */
        _exit(12);
    }
    int code = result_of(child);
    CHECK(code == (handled % 2 ? 13 : 12));
    handled++;
}
CASE(fork_in_a_handler) {
    struct sigaction action = {.sa_handler = fork_in_handler};
    sigaction(SIGUSR1, &action, NULL);
    pid_t self = getpid();
    for (int i = 0; i < 20; i++) {
        kill(self, SIGUSR1);
        if (getpid() != self) _exit(13);
    }
    printf("%d\n", handled);
}
/* Signals of a timer all the while. */
static void tick(int number) {
    (void)number;
    handled++;
}
CASE(fork_among_signals) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 60; i++) {
        pid_t child = fork();
        if (child == 0) _exit(fibonacci(14) == 377 ? 4 : 5);
        CHECK(result_of(child) == 4);
    }
    CHECK(handled > 0);
}
CASE(signals_at_start) {
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    for (int number = 1; number < 65; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) != 0) continue;
        if (sigismember(&set, number)) printf("%d is blocked ", number);
        if (action.sa_handler == SIG_IGN) printf("%d is ignored ", number);
        if (action.sa_handler != SIG_IGN && action.sa_handler != SIG_DFL) printf("%d is handled ", number);
    }
    puts("");
}
/* What a child inherits of signals, and what it does not. */
CASE(inherited_signals) {
    struct sigaction action = {.sa_handler = tick};
    sigaction(SIGUSR1, &action, NULL);
    sigset_t set, other;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR1);
    pid_t child = fork();
    if (child == 0) {
        sigpending(&other);
        CHECK(!sigismember(&other, SIGUSR1));
        sigprocmask(SIG_UNBLOCK, &set, &other);
        CHECK(sigismember(&other, SIGUSR1) && handled == 0);
        raise(SIGUSR1);
        CHECK(handled == 1);
        _exit(6);
    }
    CHECK(result_of(child) == 6);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    CHECK(handled == 1);
    /* Across exec what is ignored stays ignored, what is handled does not; the mask stays. */
    signal(SIGUSR2, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "itself", "signals_at_start", NULL);
        _exit(99);
    }
    CHECK(result_of(child) == 0);
    /* Those that a tool may want for itself, too. */
    signal(SIGSEGV, SIG_IGN);
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    child = vfork();
    if (child == 0) {
        execl("/no/such/file", "none", NULL);
        execl("/proc/self/exe", "itself", "signals_at_start", NULL);
        _exit(99);
    }
    CHECK(result_of(child) == 0);
}
/* A child that begins without handlers still sees its code change. */
APART static void check_cleared(void) {
    struct sigaction action;
    CHECK(sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGUSR2, NULL, &action) == 0 && action.sa_handler == SIG_IGN);
    CHECK(sigaction(SIGSEGV, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    static const unsigned char give[] = {0xb8, 1, 0, 0, 0, 0xc3}; /* mov $1, %eax; ret */
    unsigned char *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(made != MAP_FAILED);
    memcpy(made, give, sizeof give);
    for (unsigned char i = 1; i < 10; i++) {
        made[1] = i;
        SAME(((int (*)(void))made)(), i);
    }
    syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1);
    _exit(1);
}
CASE(begun_without_handlers) {
    struct sigaction action = {.sa_handler = tick};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    signal(SIGUSR2, SIG_IGN);
    static const uint64_t kinds[] = {0, CLONE_VM | CLONE_VFORK};
    for (volatile int i = 0; i < 4; i++) {
        uint64_t words[8] = {kinds[i % 2] | 0x100000000, 0, 0, 0, SIGCHLD};
        long child;
        /* Not by a function: both would return from it by the same stack. */
        asm volatile("syscall"
                     : "=a"(child)
                     : "a"(SYS_clone3), "D"(words), "S"(sizeof words)
                     : "rcx", "r11", "memory");
        if (child == 0) check_cleared();
        printf("%d ", result_of((pid_t)child));
    }
    puts("");
    raise(SIGUSR1);
    CHECK(handled == 1);
}

/* --- exec --- */

CASE(exec_fails) {
    char *const words[] = {"none", NULL};
    for (int i = 0; i < 20; i++) {
        CHECK(execv("/no/such/file", words) == -1 && errno == ENOENT);
        CHECK(execv("/", words) == -1 && errno == EACCES);
        CHECK(execv("/etc/passwd", words) == -1 && errno == EACCES);
    }
    char name[] = "/tmp/weft-exec-XXXXXX";
    int file = mkstemp(name);
    CHECK(write(file, "\177ELF rubbish", 12) == 12);
    fchmod(file, 0755);
    close(file);
    CHECK(execv(name, words) == -1 && errno == ENOEXEC);
    unlink(name);
    CHECK(fibonacci(15) == 610);
    struct sigaction old;
    CHECK(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
}
CASE(exec) {
    puts("before");
    execl("/bin/sh", "sh", "-c", "echo after; exit 31", NULL);
}
CASE(exec_script) {
    char name[] = "/tmp/weft-script-XXXXXX";
    int file = mkstemp(name);
    dprintf(file, "#!/bin/sh -e\nrm $0\necho script $1\nexit 32\n");
    fchmod(file, 0755);
    close(file);
    execl(name, "ignored", "argument", NULL);
}
CASE(exec_self) {
    puts("again");
    execl("/proc/self/exe", "itself", "exec_target", "5", NULL);
}
CASE(exec_target) {
    char path[256] = {0};
    CHECK(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    printf("%s %ld\n", strrchr(path, '/') + 1, amount);
}
CASE(exec_often) {
    if (amount < 30) {
        char next[32];
        snprintf(next, sizeof next, "%ld", amount + 1);
        execl("/proc/self/exe", "itself", "exec_often", next, NULL);
    }
    printf("%ld\n", amount);
}
CASE(fexecve) {
    int file = open("/bin/echo", O_RDONLY | O_CLOEXEC);
    char *const words[] = {"echo", "by descriptor", NULL};
    fflush(stdout);
    fexecve(file, words, environ);
}
static void *execs(void *unused) {
    execl("/bin/sh", "sh", "-c", "echo from a thread; test $$ = $PARENT && exit 33", NULL);
    return unused;
}
CASE(exec_from_a_thread) {
    char text[16];
    snprintf(text, sizeof text, "%d", getpid());
    setenv("PARENT", text, 1);
    pthread_t threads[4], thread;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, spins, NULL);
    pthread_create(&thread, NULL, execs, NULL);
    for (;;) pause();
}
CASE(environment) {
    char *const words[] = {"env", NULL}, *const variables[] = {"ONLY=this", NULL};
    execve("/usr/bin/env", words, variables);
}
/* Descriptors are as they were: those that tools have are not to be seen. */
CASE(descriptors) {
    int first = dup(0);
    printf("%d\n", first);
    CHECK(fcntl(first, F_GETFD) == 0);
    for (int i = first + 1; i < 64; i++)
        if (fcntl(i, F_GETFD) != -1) printf("%d is open\n", i);
    close_range(3, ~0u, 0);
    CHECK(fibonacci(18) == 2584);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    CHECK(result_of(child) == 0);
}

/* A program that has given up its rights goes on; what is new to it may be none of its calls. */
static void allow_only(const int *calls, int count, unsigned otherwise) {
    struct sock_filter filter[40] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    int used = 1;
    for (int i = 0; i < count; i++) {
        filter[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
    struct sock_fprog program = {.len = (unsigned short)used, .filter = filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}
/* The clone itself needs one: see `filters.rs`. */
static const int few_calls[] = {SYS_write, SYS_exit_group, SYS_rt_sigreturn, SYS_exit, SYS_rt_sigprocmask};
CASE(without_rights) {
    puts("before");
    allow_only(few_calls, 5, SECCOMP_RET_ERRNO | EPERM);
    CHECK(syscall(SYS_getppid) == -1 && errno == EPERM);
    CHECK(fibonacci(20) == 6765);
    static const char text[] = "1234.5";
    printf("%.2f\n", strtod(text, NULL) * 2); /* code that did not run before */
}
CASE(killed_by_a_filter) {
    puts("before");
    allow_only(few_calls, 5, SECCOMP_RET_KILL_PROCESS);
    printf("%d\n", fibonacci(21));
    printf("%.3f\n", strtod("17.25", NULL));
    getppid();
    puts("not reached");
}

CASE(statuses) {
    static const int codes[] = {0, 1, 127, 128, 255, 256 + 7};
    for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++) {
        pid_t child = fork();
        if (child == 0) _exit(codes[i]);
        printf("%d ", result_of(child));
    }
    static const int signals[] = {SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGABRT, SIGSEGV, SIGPIPE};
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
        /* Whoever has started this may ignore it: nohup does, and shells that run something aside. */
        signal(signals[i], SIG_DFL);
        pid_t child = fork();
        if (child == 0)
            for (;;) pause();
        kill(child, signals[i]);
        printf("%d ", result_of(child));
    }
    puts("");
    siginfo_t info;
    pid_t child = fork();
    if (child == 0) syscall(SYS_exit, 44);
    CHECK(waitid(P_PID, (id_t)child, &info, WEXITED) == 0 && info.si_code == CLD_EXITED && info.si_status == 44);
}
/* Where there are children there are pipes. */
CASE(pipes) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        for (uint32_t i = 0; i < 10000; i++) CHECK(write(ends[1], &i, 4) == 4);
        _exit(0);
    }
    close(ends[1]);
    uint32_t value, next = 0;
    while (read(ends[0], &value, 4) == 4) CHECK(value == next++);
    CHECK(next == 10000 && result_of(child) == 0);
    signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    CHECK(pipe(ends) == 0);
    close(ends[0]);
    CHECK(write(ends[1], "x", 1) == -1 && errno == EPIPE);
}
/* A process without parents in sight. */
CASE(daemon) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        if (fork() > 0) _exit(0);
        setsid();
        while (getppid() == getpgrp()) sched_yield();
        CHECK(write(ends[1], "done", 4) == 4 && fibonacci(10) == 55);
        _exit(0);
    }
    CHECK(result_of(child) == 0);
    char text[5] = "";
    CHECK(read(ends[0], text, 4) == 4);
    puts(text);
}
/* A child that shares memory for a moment has signals of its own. */
static volatile sig_atomic_t handled;
static void on_user_signal(int number) {
    handled += number == SIGUSR1;
}
CASE(handlers_after_a_spawn) {
    struct sigaction action = {.sa_handler = on_user_signal};
    sigset_t both;
    posix_spawnattr_t attributes;
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && posix_spawnattr_init(&attributes) == 0);
    posix_spawnattr_setsigdefault(&attributes, &both);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    char *words[] = {"true", NULL}, *nothing[] = {NULL};
    for (int i = 0; i < 5; i++) {
        pid_t child;
        CHECK(posix_spawn(&child, "/bin/true", NULL, &attributes, words, nothing) == 0);
        CHECK(result_of(child) == 0 && raise(SIGUSR1) == 0);
    }
    printf("%d\n", (int)handled);
}
