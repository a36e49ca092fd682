// A mail spool: `store` writes messages and makes them safe; `claim` takes turns with other
// processes at the spool, which one file locks.
#define _GNU_SOURCE
#include <sys/file.h>

#include "program.h"

enum { MESSAGE = 4 << 20, SPOOL = 64 << 20 };

// Written past the page cache, which wants it at the start of a page.
static char message[MESSAGE] __attribute__((aligned(4096)));

__attribute__((noinline)) static void store_message(int spool, off_t place) {
    snprintf(message, sizeof message, "Message: %ld\n", (long)place);
    if (pwrite(spool, message, sizeof message, place) != sizeof message || fsync(spool) < 0)
        abort();
}

__attribute__((noinline)) static void claim_spool(int lock, long work_us) {
    flock(lock, LOCK_EX);
    nap_us(work_us);
    flock(lock, LOCK_UN);
}

int main(int argc, char **argv) {
    // spool COUNTER store FILE | spool COUNTER claim FILE WORK_US PAUSE_US
    count_in(argv[1]);
    int file = open(argv[3], O_RDWR | O_CREAT | (argc < 6 ? O_DIRECT : 0), 0600);
    if (argc < 6) {
        for (off_t place = 0;; place = (place + MESSAGE) % SPOOL) {
            store_message(file, place);
            count(1);
        }
    }
    for (;;) {
        claim_spool(file, atol(argv[4]));
        count(1);
        nap_us(atol(argv[5]));
    }
}
