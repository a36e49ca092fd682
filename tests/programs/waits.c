/* Threads that each wait for something known, named after it; prints "ready" when all are about to. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_barrier_t barrier;
static sem_t forever;
pthread_mutex_t normal_lock, recursive_lock, checking_lock, adaptive_lock, inheriting_lock, robust_lock, timed_lock;
pthread_mutex_t condition_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t *shared_lock;
pthread_rwlock_t write_held = PTHREAD_RWLOCK_INITIALIZER, read_held = PTHREAD_RWLOCK_INITIALIZER;
pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
sem_t semaphore;
static pthread_barrier_t never_full;
static pthread_t holder;
static int locked_file;
static const char *path;

static void make(pthread_mutex_t *lock, int type, int inherits, int robust, int shared) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, type);
    if (inherits) pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
    if (robust) pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (shared) pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    if (pthread_mutex_init(lock, &a)) abort();
}

static void in_normal(void) { pthread_mutex_lock(&normal_lock); }
static void in_recursive(void) { pthread_mutex_lock(&recursive_lock); }
static void in_checking(void) { pthread_mutex_lock(&checking_lock); }
static void in_adaptive(void) { pthread_mutex_lock(&adaptive_lock); }
static void in_inheriting(void) { pthread_mutex_lock(&inheriting_lock); }
static void in_robust(void) { pthread_mutex_lock(&robust_lock); }
static void in_shared(void) { pthread_mutex_lock(shared_lock); }
static void in_timed(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3600;
    pthread_mutex_timedlock(&timed_lock, &until);
}
static void in_reader(void) { pthread_rwlock_rdlock(&write_held); }
static void in_writer(void) { pthread_rwlock_wrlock(&write_held); }
static void in_behind_readers(void) { pthread_rwlock_wrlock(&read_held); }
static void in_condition(void) {
    pthread_mutex_lock(&condition_lock);
    for (;;) pthread_cond_wait(&condition, &condition_lock);
}
static void in_semaphore(void) { sem_wait(&semaphore); }
static void in_barrier(void) { pthread_barrier_wait(&never_full); }
static void in_join(void) { pthread_join(holder, NULL); }
static void in_pipe(void) {
    char byte;
    int ends[2];
    if (pipe(ends) || read(ends[0], &byte, 1) < 0) abort();
}
static void in_full_pipe(void) {
    int ends[2];
    if (pipe(ends)) abort();
    char page[4096] = {0};
    for (;;) if (write(ends[1], page, sizeof page) < 0) abort();
}
static void in_closed_socket(void) {
    char byte;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || recv(ends[0], &byte, 1, 0) < 0) abort();
}
static void in_poll(void) {
    int ends[2];
    if (pipe(ends)) abort();
    struct pollfd wanted[] = {{.fd = ends[0], .events = POLLIN}, {.fd = eventfd(0, 0), .events = POLLIN}};
    poll(wanted, 2, 3600000);
}
static void in_select(void) {
    fd_set set;
    FD_ZERO(&set);
    int queue = inotify_init();
    FD_SET(queue, &set);
    select(queue + 1, &set, NULL, NULL, NULL);
}
static void in_epoll(void) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, eventfd(0, 0), &event);
    epoll_wait(epoll, &event, 1, -1);
}
static void in_timerfd(void) {
    char value[8];
    if (read(timerfd_create(CLOCK_MONOTONIC, 0), value, 8) < 0) abort();
}
static void in_signalfd(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    struct signalfd_siginfo information;
    if (read(signalfd(-1, &set, 0), &information, sizeof information) < 0) abort();
}
static void in_child(void) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    waitpid(child, NULL, 0);
}
static void in_sleep(void) { struct timespec t = {3600, 0}; nanosleep(&t, NULL); }
static void in_pause(void) { pause(); }
static void in_sigwait(void) {
    sigset_t set;
    int number;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigwait(&set, &number);
}
static void in_flock(void) { flock(open(path, O_RDWR), LOCK_EX); }
static void in_fifo(void) {
    char name[4096];
    snprintf(name, sizeof name, "%s.fifo", path);
    if (open(name, O_RDONLY) < 0) abort();
}

#define WAY(name) {#name, in_##name}
static const struct { const char *name; void (*run)(void); } WAYS[] = {
    WAY(normal), WAY(recursive), WAY(checking), WAY(adaptive), WAY(inheriting), WAY(robust), WAY(shared),
    WAY(timed), WAY(reader), WAY(writer), WAY(behind_readers), WAY(condition), WAY(semaphore), WAY(barrier),
    WAY(join), WAY(pipe), WAY(full_pipe), WAY(closed_socket), WAY(poll), WAY(select), WAY(epoll),
    WAY(timerfd), WAY(signalfd), WAY(child), WAY(sleep), WAY(pause), WAY(sigwait), WAY(flock), WAY(fifo),
};
enum { COUNT = sizeof WAYS / sizeof *WAYS };

static void *hold(void *unused) {
    pthread_setname_np(pthread_self(), "holder");
    pthread_mutex_t *locks[] = {&normal_lock, &recursive_lock, &checking_lock, &adaptive_lock,
                                &inheriting_lock, &robust_lock, shared_lock, &timed_lock};
    for (unsigned at = 0; at < sizeof locks / sizeof *locks; at++) pthread_mutex_lock(locks[at]);
    pthread_rwlock_wrlock(&write_held);
    pthread_rwlock_rdlock(&read_held);
    flock(locked_file, LOCK_EX);
    pthread_barrier_wait(&barrier);
    for (;;) sem_wait(&forever);
    return unused;
}

static void *start(void *way) {
    pthread_setname_np(pthread_self(), WAYS[(long)way].name);
    pthread_barrier_wait(&barrier);
    WAYS[(long)way].run();
    /* It has ended although nothing has ended it. */
    if (write(1, "disturbed\n", 10) < 0) abort();
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    path = arguments[1];
    locked_file = open(path, O_RDWR);
    pthread_barrier_init(&barrier, NULL, COUNT + 2);
    pthread_barrier_init(&never_full, NULL, 2);
    sem_init(&semaphore, 0, 0);
    sem_init(&forever, 0, 0);
    shared_lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    make(&normal_lock, PTHREAD_MUTEX_NORMAL, 0, 0, 0);
    make(&timed_lock, PTHREAD_MUTEX_NORMAL, 0, 0, 0);
    make(&recursive_lock, PTHREAD_MUTEX_RECURSIVE, 0, 0, 0);
    make(&checking_lock, PTHREAD_MUTEX_ERRORCHECK, 0, 0, 0);
#ifdef __GLIBC__
    make(&adaptive_lock, PTHREAD_MUTEX_ADAPTIVE_NP, 0, 0, 0);
#else
    make(&adaptive_lock, PTHREAD_MUTEX_NORMAL, 0, 0, 0);
#endif
    make(&inheriting_lock, PTHREAD_MUTEX_NORMAL, 1, 0, 0);
    make(&robust_lock, PTHREAD_MUTEX_NORMAL, 0, 1, 0);
    make(shared_lock, PTHREAD_MUTEX_NORMAL, 0, 0, 1);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_create(&holder, NULL, hold, NULL);
    for (long way = 0; way < COUNT; way++) {
        pthread_t thread;
        pthread_create(&thread, NULL, start, (void *)way);
    }
    pthread_barrier_wait(&barrier);
    puts("ready");
    fflush(stdout);
    getchar();
    puts("done");
    fflush(stdout);
    _exit(0);
}
