// Blocks its first thread in one system call and checks how that call comes back: never early, never
// with EINTR. It prints when the call started and ended, on the clock that all processes share, so that
// the test can tell whether it was late. A second thread waits for the end of the input, then lets the
// call end, unless the call ends by its timeout.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_MS = 1000, SIGNAL_MASK_SIZE = 8 };

static const struct timespec timeout = {TIMEOUT_MS / 1000, TIMEOUT_MS % 1000 * 1000000L};

// What the modes block on. Nothing is ever written to `pipes` but by `release_pipe`.
static int pipes[2], sockets[2], listener, epoll, semaphores = -1;
static pid_t child;
static pthread_t first_thread;
static atomic_uint word;
static atomic_bool released;
static uint64_t waited_signals;  // SIGUSR1 and SIGUSR2, as the kernel's own mask

static void release_pipe(void) {
    if (write(pipes[1], "x", 1) != 1) abort();
}

static void release_futex(void) {
    word = 1;
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void release_child(void) {
    close(pipes[1]);
}

static void release_listener(void) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int client = socket(AF_INET, SOCK_STREAM, 0);
    if (getsockname(listener, (struct sockaddr *)&address, &length) ||
        connect(client, (struct sockaddr *)&address, length))
        abort();
}

static void release_signal(void) {
    pthread_kill(first_thread, SIGUSR1);
}

static void release_semaphore(void) {
    struct sembuf up = {0, 1, 0};
    if (semop(semaphores, &up, 1)) abort();
}

static long block_read(void) {
    char byte;
    return syscall(SYS_read, pipes[0], &byte, 1);
}

static long block_poll(int limit) {
    struct pollfd wanted = {pipes[0], POLLIN, 0};
    return syscall(SYS_poll, &wanted, 1, limit);
}
static long block_poll_forever(void) { return block_poll(-1); }
static long block_poll_timeout(void) { return block_poll(TIMEOUT_MS); }

static long block_ppoll(const struct timespec *limit) {
    struct pollfd wanted = {pipes[0], POLLIN, 0};
    struct timespec left = limit ? *limit : timeout;
    return syscall(SYS_ppoll, &wanted, 1, limit ? &left : NULL, NULL, SIGNAL_MASK_SIZE);
}
static long block_ppoll_forever(void) { return block_ppoll(NULL); }
static long block_ppoll_timeout(void) { return block_ppoll(&timeout); }

static long block_pselect(const struct timespec *limit) {
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(pipes[0], &wanted);
    struct timespec left = limit ? *limit : timeout;
    return syscall(SYS_pselect6, pipes[0] + 1, &wanted, NULL, NULL, limit ? &left : NULL, NULL);
}
static long block_pselect_forever(void) { return block_pselect(NULL); }
static long block_pselect_timeout(void) { return block_pselect(&timeout); }

static long block_epoll(int limit) {
    struct epoll_event event;
    return syscall(SYS_epoll_wait, epoll, &event, 1, limit);
}
static long block_epoll_forever(void) { return block_epoll(-1); }
static long block_epoll_timeout(void) { return block_epoll(TIMEOUT_MS); }

static long block_futex_forever(void) {
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}
static long block_futex_timeout(void) {
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &timeout, NULL, 0);
}

static struct timespec deadline(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += timeout.tv_nsec;
    at.tv_sec += timeout.tv_sec + at.tv_nsec / 1000000000L;
    at.tv_nsec %= 1000000000L;
    return at;
}

static long block_futex_deadline(void) {
    struct timespec at = deadline();
    return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &at, NULL, FUTEX_BITSET_MATCH_ANY);
}

static long block_nanosleep(void) { return syscall(SYS_nanosleep, &timeout, NULL); }
static long block_clock_nanosleep(void) {
    return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &timeout, NULL);
}
static long block_clock_nanosleep_deadline(void) {
    struct timespec at = deadline();
    return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static long block_wait4(void) {
    int status = 0;
    long waited = syscall(SYS_wait4, child, &status, 0, NULL);
    return waited == child && WIFEXITED(status) ? WEXITSTATUS(status) : waited;
}

static long block_accept(void) {
    return syscall(SYS_accept, listener, NULL, NULL) >= 0 ? 0 : -1;
}

static long block_sigsuspend(void) {
    uint64_t none = 0;
    return syscall(SYS_rt_sigsuspend, &none, SIGNAL_MASK_SIZE);
}
static long block_pause(void) { return syscall(SYS_pause); }
static long block_sigwait_forever(void) {
    return syscall(SYS_rt_sigtimedwait, &waited_signals, NULL, NULL, SIGNAL_MASK_SIZE);
}
static long block_sigwait_timeout(void) {
    return syscall(SYS_rt_sigtimedwait, &waited_signals, NULL, &timeout, SIGNAL_MASK_SIZE);
}

static long block_semop(void) {
    struct sembuf down = {0, -1, 0};
    return syscall(SYS_semop, semaphores, &down, 1);
}
static long block_semtimedop(void) {
    struct sembuf down = {0, -1, 0};
    return syscall(SYS_semtimedop, semaphores, &down, 1, &timeout);
}

static long block_recv(void) {
    struct timeval limit = {timeout.tv_sec, timeout.tv_nsec / 1000};
    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char byte;
    return syscall(SYS_recvfrom, sockets[0], &byte, 1, 0, NULL, NULL);
}

// A mode ends by what releases it or, without a release, by its timeout. `error` is the error number
// that it must end with: 0 when the call must return `result`.
static const struct mode {
    const char *name;
    long (*block)(void);
    void (*release)(void);
    long result;
    int error;
} modes[] = {
    {"read", block_read, release_pipe, 1, 0},
    {"poll", block_poll_forever, release_pipe, 1, 0},
    {"poll-timeout", block_poll_timeout, NULL, 0, 0},
    {"ppoll", block_ppoll_forever, release_pipe, 1, 0},
    {"ppoll-timeout", block_ppoll_timeout, NULL, 0, 0},
    {"pselect", block_pselect_forever, release_pipe, 1, 0},
    {"pselect-timeout", block_pselect_timeout, NULL, 0, 0},
    {"epoll_wait", block_epoll_forever, release_pipe, 1, 0},
    {"epoll_wait-timeout", block_epoll_timeout, NULL, 0, 0},
    {"futex", block_futex_forever, release_futex, 0, 0},
    {"futex-timeout", block_futex_timeout, NULL, -1, ETIMEDOUT},
    {"futex-deadline", block_futex_deadline, NULL, -1, ETIMEDOUT},
    {"nanosleep", block_nanosleep, NULL, 0, 0},
    {"clock_nanosleep", block_clock_nanosleep, NULL, 0, 0},
    {"clock_nanosleep-deadline", block_clock_nanosleep_deadline, NULL, 0, 0},
    {"wait4", block_wait4, release_child, 3, 0},
    {"accept", block_accept, release_listener, 0, 0},
    {"sigsuspend", block_sigsuspend, release_signal, -1, EINTR},
    {"pause", block_pause, release_signal, -1, EINTR},
    {"rt_sigtimedwait", block_sigwait_forever, release_signal, SIGUSR1, 0},
    {"rt_sigtimedwait-timeout", block_sigwait_timeout, NULL, -1, EAGAIN},
    {"semop", block_semop, release_semaphore, 0, 0},
    {"semtimedop-timeout", block_semtimedop, NULL, -1, EAGAIN},
    {"recv-timeout", block_recv, NULL, -1, EAGAIN},
};

static const struct mode *mode;

static void *wait_for_end_of_input(void *unused) {
    char byte;
    if (read(0, &byte, 1) != 0) abort();
    released = 1;
    if (mode->release) mode->release();
    return unused;
}

static void ignore(int number) { (void)number; }

static void prepare(void) {
    first_thread = pthread_self();
    if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) abort();
    epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1)) abort();

    struct sigaction action = {.sa_handler = ignore};
    sigaction(SIGUSR1, &action, NULL);
    if (mode->block == block_sigwait_forever || mode->block == block_sigwait_timeout ||
        mode->block == block_sigsuspend) {
        waited_signals = 1ul << (SIGUSR1 - 1) | 1ul << (SIGUSR2 - 1);
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, &waited_signals, NULL, SIGNAL_MASK_SIZE);
    }
    if (mode->block == block_semop || mode->block == block_semtimedop)
        semaphores = semget(IPC_PRIVATE, 1, 0600);
    if (mode->block == block_wait4 && (child = fork()) == 0) {
        char byte;
        close(pipes[1]);
        _exit(read(pipes[0], &byte, 1) == 0 ? 3 : 4);
    }
}

static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (argc == 1) puts(modes[i].name);
        else if (!strcmp(argv[1], modes[i].name)) mode = &modes[i];
    }
    if (!mode) return argc == 1 ? 0 : 2;

    prepare();
    pthread_t waiter;
    if (pthread_create(&waiter, NULL, wait_for_end_of_input, NULL)) abort();
    puts("ready");
    fflush(stdout);

    long start = milliseconds();
    errno = 0;
    long result = mode->block();
    int error = errno;
    long end = milliseconds();

    int right = result == mode->result && error == mode->error;
    if (!right) printf("%s returned %ld (%s)\n", mode->name, result, strerror(error));
    // The clock is read in whole milliseconds, one may be lost at either end.
    int early = mode->release ? !released : end - start < TIMEOUT_MS - 1;
    if (early) printf("%s returned early, after %ld ms\n", mode->name, end - start);
    pthread_join(waiter, NULL);
    if (semaphores >= 0) semctl(semaphores, 0, IPC_RMID);
    if (!right || early) return 1;
    printf("right from %ld to %ld\n", start, end);
    return 7;
}
