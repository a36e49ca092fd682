// Passes messages between 64 connections, of which it watches those that it expects something from.
#include <sys/epoll.h>
#include <sys/socket.h>

#include "program.h"

namespace {

constexpr int CONNECTIONS = 64;
int ends[CONNECTIONS][2];

void watch(int poller, int descriptor) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &event);
}

[[gnu::noinline]] void pass_message(int poller, int to) {
    char letter = 'm';
    watch(poller, ends[to][1]);
    if (write(ends[to][0], &letter, 1) != 1)
        abort();
    epoll_event event;
    if (epoll_wait(poller, &event, 1, -1) == 1 && read(event.data.fd, &letter, 1) != 1)
        abort();
    epoll_ctl(poller, EPOLL_CTL_DEL, ends[to][1], nullptr);
}

}  // namespace

int main(int, char **argv) {
    count_in(argv[1]);
    int poller = epoll_create1(0);
    for (auto &pair : ends)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
            abort();
    uint64_t state = 88172645463325252u;
    for (;;) {
        pass_message(poller, static_cast<int>(next_random(&state) % CONNECTIONS));
        count(1);
    }
}
