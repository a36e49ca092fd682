// Two clerks sell seats; each asks the bank while it holds the hall's list.
#include <pthread.h>

#include "program.h"

enum { CLERKS = 2, SEATS = 4096 };

static int list_taken;
static int seats[SEATS];

__attribute__((noinline)) static void take_list(void) {
    while (__atomic_exchange_n(&list_taken, 1, __ATOMIC_ACQUIRE)) {
    }
}

__attribute__((noinline)) static void give_back_list(void) {
    __atomic_store_n(&list_taken, 0, __ATOMIC_RELEASE);
}

__attribute__((noinline)) static void ask_bank(void) { nap_us(1500); }

static void *clerk(void *argument) {
    uint64_t state = 88172645463325252u + (uintptr_t)argument;
    for (;;) {
        take_list();
        seats[next_random(&state) % SEATS]++;
        ask_bank();
        give_back_list();
        count(1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    count_in(argv[1]);
    pthread_t threads[CLERKS];
    for (uintptr_t i = 0; i < CLERKS; i++)
        pthread_create(&threads[i], NULL, clerk, (void *)i);
    pthread_join(threads[0], NULL);
}
