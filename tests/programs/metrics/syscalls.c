/* System calls of known number and length. See truth.h. */
#define _GNU_SOURCE
#define VALUES(X) X(all_syscalls) X(work_syscalls) X(sleeps_ns) X(asks_syscalls)
#include <fcntl.h>
#include <sys/syscall.h>
#define AFTER_BATCH() (truth_batch[all_syscalls_number] = FRAME_SYSCALLS + truth_batch[work_syscalls_number])
#include "truth.h"

APART void asks(void) {
    check(syscall(SYS_getppid) == getppid(), "the parent");
    ADD(asks_syscalls, 2);
}

APART void sleeps(void) {
    struct timespec time = {0, 2000000};
    long began = now();
    check(!nanosleep(&time, NULL), "sleeping");
    ADD(sleeps_ns, now() - began);
}

APART void does_syscalls(long amount) {
    for (long i = 0; i < amount; i++) {
        char byte;
        asks();
        sleeps();
        /* A system call that fails is one as well. */
        check(read(-1, &byte, 1) == -1, "a read of nothing");
        check(close(-1) == -1, "a close of nothing");
        ADD(work_syscalls, 5);
    }
}

static void work(long amount) { does_syscalls(amount); }

int main(int argc, char **argv) { return truth_main(argc, argv); }
