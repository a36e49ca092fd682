/* Deadlocks, and what only looks like one; the first argument says which. Prints "ready" when it is near. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define apart __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" ::: "memory")

pthread_mutex_t locks[3] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_barrier_t barrier;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static int ring, is_timed;

static void ready(void) {
    puts("ready");
    fflush(stdout);
}
static void rest(void) {
    for (;;) pause();
}
apart void take_second(pthread_mutex_t *lock) {
    if (is_timed) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 3600;
        pthread_mutex_timedlock(lock, &until);
    } else {
        pthread_mutex_lock(lock);
    }
    KEEP;
}
static void *in_ring(void *number) {
    long at = (long)number;
    char name[16];
    snprintf(name, sizeof name, "ring %ld", at);
    pthread_setname_np(pthread_self(), name);
    pthread_mutex_lock(&locks[at]);
    pthread_barrier_wait(&barrier);
    take_second(&locks[(at + 1) % ring]);
    return NULL;
}
static void *behind(void *unused) {
    pthread_setname_np(pthread_self(), "behind");
    take_second(&locks[0]);
    return unused;
}
static void run_ring(int size) {
    pthread_t thread;
    ring = size;
    pthread_barrier_init(&barrier, NULL, size + 1);
    for (long at = 0; at < size; at++) pthread_create(&thread, NULL, in_ring, (void *)at);
    pthread_barrier_wait(&barrier);
    pthread_create(&thread, NULL, behind, NULL);
    ready();
    rest();
}
static void self(void) {
    pthread_mutex_lock(&locks[0]);
    ready();
    take_second(&locks[0]);
}
/* A thread that holds a lock waits for the end of one that wants it. */
static void joined(void) {
    pthread_t thread;
    pthread_mutex_lock(&locks[0]);
    pthread_create(&thread, NULL, behind, NULL);
    ready();
    pthread_join(thread, NULL);
}
static pid_t start_child(void) {
    pid_t child = fork();
    if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}
apart void await_byte(int descriptor) {
    char byte;
    if (read(descriptor, &byte, 1) < 0) abort();
    KEEP;
}
static void pipes(void) {
    int to[2], from[2];
    if (pipe(to) || pipe(from)) abort();
    if (start_child() == 0) {
        close(to[1]), close(from[0]);
        await_byte(to[0]);
        _exit(0);
    }
    close(to[0]), close(from[1]);
    ready();
    await_byte(from[0]);
}
/* One waits for the end of another, which wants it to read what it writes. */
static void full_pipe(void) {
    int ends[2];
    static char page[1 << 20];
    if (pipe(ends)) abort();
    pid_t child = start_child();
    if (child == 0) {
        if (write(ends[1], page, sizeof page) < 0) abort();
        _exit(0);
    }
    close(ends[1]);
    ready();
    waitpid(child, NULL, 0);
}
static void unix_sockets(int seconds) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) abort();
    struct timeval limit = {seconds, 0};
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (start_child() == 0) {
        close(ends[0]);
        await_byte(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    ready();
    await_byte(ends[0]);
}
static void tcp(int is_polled) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&address, size) || listen(listener, 1)) abort();
    getsockname(listener, (void *)&address, &size);
    if (start_child() == 0) {
        close(listener);
        int end = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(end, (void *)&address, size)) abort();
        await_byte(end);
        _exit(0);
    }
    int end = accept(listener, NULL, NULL);
    ready();
    if (is_polled) {
        /* A server that waits for others too. */
        struct pollfd wanted[] = {{.fd = end, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
        poll(wanted, 2, -1);
    } else {
        close(listener);
        await_byte(end);
    }
}
apart void take_file(const char *path) {
    flock(open(path, O_RDWR | O_CLOEXEC), LOCK_EX);
    KEEP;
}
static int meeting[2];
/* Before a child is started. */
static void arrange(void) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, meeting)) abort();
}
/* Both go on when both are here, and have nothing in common any more. */
static void meet(int is_child) {
    char byte = 0;
    if (write(meeting[is_child], &byte, 1) < 0 || read(meeting[is_child], &byte, 1) < 0) abort();
    close(meeting[0]), close(meeting[1]);
}
static void files(const char *first, const char *second) {
    arrange();
    if (start_child() == 0) {
        take_file(second);
        meet(1);
        take_file(first);
        _exit(0);
    }
    take_file(first);
    meet(0);
    ready();
    take_file(second);
}
/* A lock that processes share, and each holds one. */
static void shared(void) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutex_t *both = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutex_init(&both[0], &a);
    pthread_mutex_init(&both[1], &a);
    arrange();
    if (start_child() == 0) {
        pthread_mutex_lock(&both[1]);
        meet(1);
        take_second(&both[0]);
        _exit(0);
    }
    pthread_mutex_lock(&both[0]);
    meet(0);
    ready();
    take_second(&both[1]);
}
static void *idle(void *unused) {
    pthread_mutex_lock(&locks[0]);
    for (;;) pthread_cond_wait(&work, &locks[0]);
    return unused;
}
static void pool(void) {
    pthread_t thread;
    for (int at = 0; at < 4; at++) pthread_create(&thread, NULL, idle, NULL);
    ready();
    pthread_join(thread, NULL);
}
/* Threads that take two locks in one order, as fast as they can. */
static void *contend(void *unused) {
    for (;;) {
        pthread_mutex_lock(&locks[0]);
        pthread_mutex_lock(&locks[1]);
        pthread_mutex_unlock(&locks[0]);
        pthread_mutex_unlock(&locks[1]);
    }
    return unused;
}
static void contention(void) {
    pthread_t thread;
    for (int at = 0; at < 4; at++) pthread_create(&thread, NULL, contend, NULL);
    ready();
    pthread_join(thread, NULL);
}
/* A pipe of its own, to which a handler of signals would write. */
static void own_pipe(void) {
    int ends[2];
    if (pipe(ends)) abort();
    ready();
    await_byte(ends[0]);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#define IS(name) (strcmp(what, name) == 0)
    if (IS("two")) run_ring(2);
    else if (IS("three")) run_ring(3);
    else if (IS("timed")) is_timed = 1, run_ring(2);
    else if (IS("self")) self();
    else if (IS("joined")) joined();
    else if (IS("pipes")) pipes();
    else if (IS("full_pipe")) full_pipe();
    else if (IS("unix")) unix_sockets(0);
    else if (IS("unix_timeout")) unix_sockets(3600);
    else if (IS("tcp")) tcp(0);
    else if (IS("server")) tcp(1);
    else if (IS("files") && count > 3) files(arguments[2], arguments[3]);
    else if (IS("shared")) shared();
    else if (IS("pool")) pool();
    else if (IS("contention")) contention();
    else if (IS("own_pipe")) own_pipe();
    else return 2;
    return 0;
}
