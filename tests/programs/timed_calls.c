/* Sleeps for two seconds in a call that is named, of which a stop may restart the time; prints how long it was. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const struct timespec LIMIT = {2, 0};

static void in_epoll(void) {
    struct epoll_event event;
    epoll_wait(epoll_create1(0), &event, 1, 2000);
}
static void in_semaphore(void) {
    int set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf down = {0, -1, 0};
    semtimedop(set, &down, 1, &LIMIT);
    semctl(set, 0, IPC_RMID);
}
static void limit_receive(int descriptor) {
    struct timeval limit = {2, 0};
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}
static void in_recv(void) {
    int ends[2];
    char byte;
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    limit_receive(ends[0]);
    recv(ends[0], &byte, 1, 0);
}
static void in_accept(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    listen(listener, 1);
    limit_receive(listener);
    accept(listener, NULL, NULL);
}
static void in_signal_wait(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    sigtimedwait(&signals, NULL, &LIMIT);
}
static void in_sleep(void) { nanosleep(&LIMIT, NULL); }

static const struct {
    const char *name;
    void (*call)(void);
} CALLS[] = {
    {"epoll_wait", in_epoll}, {"semtimedop", in_semaphore},        {"recvfrom", in_recv},
    {"accept", in_accept},    {"rt_sigtimedwait", in_signal_wait}, {"clock_nanosleep", in_sleep},
};

int main(int count, char **words) {
    struct timespec from, to;
    for (unsigned one = 0; count > 1 && one < sizeof CALLS / sizeof *CALLS; one++)
        if (!strcmp(words[1], CALLS[one].name)) {
            clock_gettime(CLOCK_MONOTONIC, &from);
            CALLS[one].call();
            clock_gettime(CLOCK_MONOTONIC, &to);
            printf("%.3f\n", (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9);
            return 0;
        }
    return 1;
}
