/* Copies a file by io_uring's rings, without its library, then waits and times out by them. */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEPTH = 16, BLOCK = 4096 };

static struct {
    int fd;
    unsigned *head, *tail, mask, *array;
    unsigned *done_head, *done_tail, done_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *done;
} ring;

static void need(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void open_ring(void) {
    struct io_uring_params p = {0};
    ring.fd = (int)syscall(SYS_io_uring_setup, DEPTH, &p);
    if (ring.fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        puts("no rings here");
        exit(0);
    }
    need(ring.fd >= 0, "io_uring_setup");
    size_t size = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    size_t done = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    int how = MAP_SHARED | MAP_POPULATE;
    char *sq = mmap(NULL, size, PROT_READ | PROT_WRITE, how, ring.fd, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, done, PROT_READ | PROT_WRITE, how, ring.fd, IORING_OFF_CQ_RING);
    ring.entries = mmap(NULL, p.sq_entries * sizeof *ring.entries, PROT_READ | PROT_WRITE, how,
                        ring.fd, IORING_OFF_SQES);
    need(sq != MAP_FAILED && cq != MAP_FAILED && ring.entries != MAP_FAILED, "mmap");
    ring.head = (unsigned *)(sq + p.sq_off.head);
    ring.tail = (unsigned *)(sq + p.sq_off.tail);
    ring.mask = *(unsigned *)(sq + p.sq_off.ring_mask);
    ring.array = (unsigned *)(sq + p.sq_off.array);
    ring.done_head = (unsigned *)(cq + p.cq_off.head);
    ring.done_tail = (unsigned *)(cq + p.cq_off.tail);
    ring.done_mask = *(unsigned *)(cq + p.cq_off.ring_mask);
    ring.done = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

static void put(int code, int fd, void *memory, unsigned length, uint64_t offset, uint64_t tag) {
    unsigned tail = *ring.tail;
    struct io_uring_sqe *entry = &ring.entries[tail & ring.mask];
    memset(entry, 0, sizeof *entry);
    entry->opcode = (uint8_t)code;
    entry->fd = fd;
    entry->addr = (uintptr_t)memory;
    entry->len = length;
    entry->off = offset;
    entry->user_data = tag;
    ring.array[tail & ring.mask] = tail & ring.mask;
    atomic_store_explicit((_Atomic unsigned *)ring.tail, tail + 1, memory_order_release);
}

static void enter(unsigned put, unsigned wanted) {
    long taken = syscall(SYS_io_uring_enter, ring.fd, put, wanted, IORING_ENTER_GETEVENTS, NULL, 0);
    need(taken == (long)put, "io_uring_enter");
}

static struct io_uring_cqe take(void) {
    unsigned head = *ring.done_head;
    while (head == atomic_load_explicit((_Atomic unsigned *)ring.done_tail, memory_order_acquire))
        enter(0, 1);
    struct io_uring_cqe found = ring.done[head & ring.done_mask];
    atomic_store_explicit((_Atomic unsigned *)ring.done_head, head + 1, memory_order_release);
    return found;
}

int main(int argc, char **argv) {
    need(argc == 3, "arguments");
    int from = open(argv[1], O_RDONLY), to = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct stat about;
    need(from >= 0 && to >= 0 && fstat(from, &about) == 0, "open");
    open_ring();
    static char blocks[DEPTH][BLOCK];
    long copied = 0, rounds = 0;
    for (long at = 0; at < about.st_size; at += DEPTH * BLOCK, rounds++) {
        unsigned asked = 0;
        for (; asked < DEPTH && at + asked * BLOCK < about.st_size; asked++)
            put(IORING_OP_READ, from, blocks[asked], BLOCK, (uint64_t)at + asked * BLOCK, asked);
        enter(asked, asked);
        unsigned sizes[DEPTH];
        for (unsigned i = 0; i < asked; i++) {
            struct io_uring_cqe found = take();
            need(found.res > 0, "read");
            sizes[found.user_data] = (unsigned)found.res;
        }
        for (unsigned i = 0; i < asked; i++)
            put(IORING_OP_WRITE, to, blocks[i], sizes[i], (uint64_t)at + i * BLOCK, i);
        enter(asked, asked);
        for (unsigned i = 0; i < asked; i++) copied += take().res;
    }
    struct __kernel_timespec brief = {.tv_nsec = 1000000};
    int timed_out = 0;
    for (int i = 0; i < 10; i++) {
        put(IORING_OP_TIMEOUT, -1, &brief, 1, 0, 99);
        enter(1, 1);
        timed_out += take().res == -ETIME;
    }
    put(IORING_OP_FSYNC, to, NULL, 0, 0, 0);
    put(IORING_OP_NOP, -1, NULL, 0, 0, 0);
    enter(2, 2);
    int last = take().res | take().res;
    printf("%ld bytes in %ld rounds, %d time-outs, %d\n", copied, rounds, timed_out, last);
    return 0;
}
