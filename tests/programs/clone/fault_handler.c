// Sees to its own page faults: a thread waits for them, and for what happens to the memory.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const size_t page = 4096, pages = 64;
static int descriptor;
static int faults;

static void *monitor(void *unused) {
    (void)unused;
    struct uffd_msg message;
    static char data[4096];
    while (read(descriptor, &message, sizeof message) == sizeof message) {
        if (message.event == UFFD_EVENT_PAGEFAULT) {
            memset(data, 'a' + faults++ % 26, page);
            uint64_t at = message.arg.pagefault.address & ~(page - 1);
            struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)data, .len = page};
            if (ioctl(descriptor, UFFDIO_COPY, &copy)) exit(3);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argv;
    descriptor = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (descriptor < 0) return 77;
    struct uffdio_api api = {.api = UFFD_API};
    api.features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE;
    if (ioctl(descriptor, UFFDIO_API, &api)) return 2;
    if (argc > 1) {
        printf("ready\n");
        fflush(stdout);
        getchar();
    }
    pthread_t thread;
    pthread_create(&thread, NULL, monitor, NULL);
    long sum = 0;
    for (int round = 0; round < 20; round++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        char *at = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, flags, -1, 0);
        struct uffdio_register range = {.range = {(uintptr_t)at, pages * page}};
        range.mode = UFFDIO_REGISTER_MODE_MISSING;
        if (ioctl(descriptor, UFFDIO_REGISTER, &range)) return 2;
        for (size_t i = 0; i < pages; i++) sum += at[i * page];
        // The kernel has the monitor know, and waits until it does.
        madvise(at, page, MADV_DONTNEED);
        munmap(at, pages * page);
    }
    printf("%ld %d\n", sum, faults);
    fflush(stdout);
    _exit(0);
}
