// Tellers post entries into one ledger, and each is acknowledged before the next: by a replica that
// takes a millisecond, or by the journal where there is one.
#define _GNU_SOURCE
#include <pthread.h>

#include "program.h"

enum { ACCOUNTS = 1024, PAGE = 4 << 20 };

static pthread_mutex_t ledger_lock = PTHREAD_MUTEX_INITIALIZER;
static long balances[ACCOUNTS];
static int journal = -1;

__attribute__((noinline)) static void acknowledge(long amount) {
    if (journal < 0) {
        nap_us(1000);
        return;
    }
    // Written past the page cache, which wants it at the start of a page.
    static char page[PAGE] __attribute__((aligned(4096)));
    snprintf(page, sizeof page, "%ld\n", amount);
    if (pwrite(journal, page, sizeof page, 0) != sizeof page || fsync(journal) < 0)
        abort();
}

__attribute__((noinline)) static void post_entry(uint64_t *state) {
    uint64_t entry = next_random(state);
    pthread_mutex_lock(&ledger_lock);
    long amount = (long)(entry >> 40);
    balances[entry % ACCOUNTS] -= amount;
    balances[entry / ACCOUNTS % ACCOUNTS] += amount;
    acknowledge(amount);
    pthread_mutex_unlock(&ledger_lock);
    count(1);
}

static void *teller(void *argument) {
    uint64_t state = 88172645463325252u + (uintptr_t)argument;
    volatile uint64_t digest = 0;
    for (;;) {
        post_entry(&state);
        for (int i = 0; i < 20000; i++)
            digest += next_random(&state);
    }
    return NULL;
}

int main(int argc, char **argv) {
    // ledger COUNTER TELLERS [JOURNAL]
    count_in(argv[1]);
    if (argc > 3)
        journal = open(argv[3], O_RDWR | O_CREAT | O_DIRECT, 0600);
    pthread_t thread;
    for (long i = 0; i < atol(argv[2]); i++)
        pthread_create(&thread, NULL, teller, (void *)i);
    pthread_join(thread, NULL);
}
