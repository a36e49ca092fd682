/* Reads and writes of known size and length. See truth.h. */
#define _GNU_SOURCE
#define VALUES(X) X(all_bytes) X(moves_bytes) X(waits_bytes) X(waits_ns)
#define AFTER_BATCH()                                                                                      \
    (truth_batch[all_bytes_number] =                                                                       \
         FRAME_BYTES + truth_batch[moves_bytes_number] + truth_batch[waits_bytes_number])
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include "truth.h"

static long moved(ssize_t bytes) {
    check(bytes >= 0, "nothing was moved");
    return bytes;
}

APART void moves_bytes(long amount) {
    char data[300] = {0};
    int pipes[2], sockets[2], memory = memfd_create("memory", 0);
    struct iovec parts[2] = {{data, 100}, {data + 100, 50}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    check(memory >= 0 && !pipe(pipes) && !socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), "descriptors");
    for (long i = 0; i < amount; i++) {
        long bytes = 0;
        bytes += moved(write(pipes[1], data, 11)) + moved(read(pipes[0], data, 300));
        bytes += moved(writev(pipes[1], parts, 2)) + moved(readv(pipes[0], parts, 2));
        bytes += moved(pwrite(memory, data, 70, 5)) + moved(pread(memory, data, 100, 0));
        bytes += moved(pwritev(memory, parts, 2, 0)) + moved(preadv(memory, parts, 2, 1));
        bytes += moved(send(sockets[0], data, 17, 0)) + moved(recv(sockets[1], data, 5, 0));
        bytes += moved(recvfrom(sockets[1], data, 300, 0, NULL, NULL));
        bytes += moved(sendto(sockets[1], data, 3, 0, NULL, 0)) + moved(recv(sockets[0], data, 9, 0));
        bytes += moved(sendmsg(sockets[0], &message, 0)) + moved(recvmsg(sockets[1], &message, 0));
        /* What fails, and what ends, moves nothing. */
        check(read(-1, data, 100) == -1, "a read of nothing");
        check(pread(memory, data, 100, 1000000) == 0, "a read behind the end");
        ADD(moves_bytes, bytes);
    }
    close(pipes[0]), close(pipes[1]), close(sockets[0]), close(sockets[1]), close(memory);
}

APART void waits(long amount) {
    struct itimerspec interval = {{0, 0}, {0, 2000000}};
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    for (long i = 0; i < amount; i++) {
        uint64_t expired;
        check(!timerfd_settime(timer, 0, &interval, NULL), "a timer");
        long began = now();
        check(read(timer, &expired, sizeof expired) == sizeof expired, "a wait");
        ADD(waits_ns, now() - began);
        ADD(waits_bytes, sizeof expired);
    }
    close(timer);
}

static void work(long amount) {
    moves_bytes(amount);
    waits(amount);
}

int main(int argc, char **argv) { return truth_main(argc, argv); }
