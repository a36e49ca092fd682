/* Much of the kernel's interface, in one program that checks what it gets. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static void check(int good, const char *what) {
    printf("%s: %s\n", what, good ? "good" : "wrong");
    fflush(stdout);
}

static volatile sig_atomic_t came;
static sigjmp_buf jump;

static void count(int signal) {
    (void)signal;
    came++;
}
static void leave(int signal) { siglongjmp(jump, signal); }
static void skip(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)info;
    /* Over the two bytes of ud2. */
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
    came++;
}

static void *add(void *eventfd) {
    uint64_t one = 1;
    for (int i = 0; i < 100; i++)
        if (write((int)(intptr_t)eventfd, &one, 8) != 8) return NULL;
    return eventfd;
}

static int in_clone(void *memory) {
    *(int *)memory = 42;
    return 7;
}

int main(void) {
    struct sigaction action = {.sa_handler = count};
    sigaction(SIGALRM, &action, NULL);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    struct itimerspec often = {{0, 500000}, {0, 500000}};
    timer_settime(timer, 0, &often, NULL);
    volatile double x = 0.5;
    while (came < 50)
        for (int i = 0; i < 1000; i++) x = 3.7 * x * (1 - x);
    timer_delete(timer);
    check(x > 0 && x < 1, "timer's signals");

    action.sa_handler = leave;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGFPE, &action, NULL);
    int back = 0;
    for (volatile int i = 0; i < 100; i++) {
        int which = sigsetjmp(jump, 1);
        if (!which) {
            if (i % 2) *(volatile int *)(uintptr_t)(8 + i) = 1;
            volatile int zero = 0;
            zero = i / zero;
        }
        back += which;
    }
    check(back == 50 * SIGSEGV + 50 * SIGFPE, "jumps out of faults");

    action = (struct sigaction){.sa_sigaction = skip, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    static char other[65536];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    sigaltstack(&stack, NULL);
    sigaction(SIGILL, &action, NULL);
    came = 0;
    for (int i = 0; i < 100; i++) __asm__ volatile("ud2");
    check(came == 100, "skipped instructions");

    int counter = eventfd(0, 0), poller = epoll_create1(0);
    epoll_ctl(poller, EPOLL_CTL_ADD, counter, &(struct epoll_event){.events = EPOLLIN});
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, add, (void *)(intptr_t)counter);
    uint64_t sum = 0;
    while (sum < 400) {
        struct epoll_event found;
        uint64_t part;
        if (epoll_wait(poller, &found, 1, -1) == 1 && read(counter, &part, 8) == 8) sum += part;
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    check(sum == 400, "eventfd and epoll");

    int watch = inotify_init1(0);
    inotify_add_watch(watch, ".", IN_CREATE | IN_DELETE);
    close(open("new", O_CREAT | O_WRONLY, 0600));
    unlink("new");
    char events[1000];
    check(read(watch, events, sizeof events) == 64, "inotify");

    int memory = memfd_create("shared", 0);
    check(ftruncate(memory, 8192) == 0, "memfd");
    int *one = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    int *two = mmap(NULL, 8192, PROT_READ, MAP_SHARED, memory, 0);
    one[1500] = 77;
    check(two[1500] == 77, "two mappings");
    one = mremap(one, 8192, 1 << 20, MREMAP_MAYMOVE);
    check(one != MAP_FAILED && one[1500] == 77, "mremap");

    int pair[2];
    check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "socketpair");
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space,
                             .msg_controllen = sizeof control.space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &memory, sizeof(int));
    char letter;
    struct iovec into = {&letter, 1};
    struct msghdr answer = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = control.space,
                            .msg_controllen = sizeof control.space};
    check(sendmsg(pair[0], &message, 0) == 1 && recvmsg(pair[1], &answer, 0) == 1, "descriptor sent");

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, 0);
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 5});
    struct signalfd_siginfo info;
    check(read(signals, &info, sizeof info) == sizeof info && info.ssi_int == 5, "signalfd");
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 6});
    siginfo_t waited;
    check(sigwaitinfo(&set, &waited) == SIGUSR1 && waited.si_value.sival_int == 6, "sigwaitinfo");

    int status, sums = 0;
    for (int i = 0; i < 50; i++) {
        pid_t child = i % 2 ? fork() : vfork();
        if (!child) _exit(i);
        waitpid(child, &status, 0);
        sums += WEXITSTATUS(status);
    }
    check(sums == 1225, "forks and vforks");
    static char child_stack[65536];
    int written = 0;
    pid_t child = clone(in_clone, child_stack + sizeof child_stack, CLONE_VM | SIGCHLD, &written);
    waitpid(child, &status, 0);
    check(written == 42 && WEXITSTATUS(status) == 7, "clone that shares memory");

    int timerfd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec soon = {{0, 0}, {0, 1000000}};
    timerfd_settime(timerfd, 0, &soon, NULL);
    struct pollfd polled = {timerfd, POLLIN, 0};
    check(ppoll(&polled, 1, &(struct timespec){5, 0}, NULL) == 1, "timerfd and ppoll");
    uint32_t word = 3;
    struct timespec brief = {0, 1000000};
    long woken = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 3, &brief, NULL, 0);
    check(woken == -1 && errno == ETIMEDOUT, "futex");
    unsigned cpu = 99, node = 99;
    check(syscall(SYS_getcpu, &cpu, &node, NULL) == 0 && cpu < 4096 && sched_getcpu() >= 0, "getcpu");
    char name[16];
    prctl(PR_SET_NAME, "renamed");
    prctl(PR_GET_NAME, name);
    check(!strcmp(name, "renamed"), "prctl");
    char piece[4];
    struct iovec local = {piece, 4}, remote = {"abcd", 4};
    check(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 4, "process_vm_readv");
    struct timespec first, second;
    clock_gettime(CLOCK_MONOTONIC, &first);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &brief, NULL);
    clock_gettime(CLOCK_MONOTONIC, &second);
    check(second.tv_sec > first.tv_sec || second.tv_nsec - first.tv_nsec >= 1000000, "clock");
    char self[200] = {0};
    check(readlink("/proc/self/exe", self, 199) > 0 && strstr(self, "/kernel"), "own name");
    execl("/bin/sh", "sh", "-c", "echo executed", NULL);
    return 1;
}
