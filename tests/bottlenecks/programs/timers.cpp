// An event loop with three timers, as an agent that reports what it sees.
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <initializer_list>

#include "program.h"

int main(int, char **argv) {
    count_in(argv[1]);
    int poller = epoll_create1(0);
    for (long ms : {20, 50, 200}) {
        int timer = timerfd_create(CLOCK_MONOTONIC, 0);
        itimerspec every = {{0, ms * 1000000}, {0, ms * 1000000}};
        timerfd_settime(timer, 0, &every, nullptr);
        epoll_event event = {};
        event.events = EPOLLIN;
        event.data.fd = timer;
        epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event);
    }
    uint64_t state = 88172645463325252u;
    volatile uint64_t sum = 0;
    for (;;) {
        epoll_event event;
        uint64_t expired;
        if (epoll_wait(poller, &event, 1, -1) != 1 || read(event.data.fd, &expired, 8) != 8)
            continue;
        for (int i = 0; i < 10000; i++)
            sum = sum + next_random(&state);
        count(1);
    }
}
