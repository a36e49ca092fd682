/* Threads that end with memory that they have freed, and some that they have not. See truth.h. */
#define _GNU_SOURCE
#define VALUES(X) X(live)
#include <malloc.h>
#include "truth.h"

#define SIZES 40
#define KEPT 48

static void *lives(void *nothing) {
    void *memory[SIZES];
    for (long i = 0; i < SIZES; i++) check((memory[i] = malloc(24 + 16 * i)) != NULL, "no memory");
    for (long i = 0; i < SIZES; i++) free(memory[i]);
    (void)nothing;
    void *kept = malloc(KEPT);
    check(kept != NULL, "no memory");
    return kept;
}

/* One after the other, so that they use the same stack, and the C library allocates nothing for it. */
static void work(long amount) {
    for (long i = 0; i < amount; i++) {
        pthread_t thread;
        void *kept;
        check(!pthread_create(&thread, NULL, lives, NULL), "no thread");
        check(!pthread_join(thread, &kept), "no end");
        ADD(live, (long)malloc_usable_size(kept));
        if (i % 2) {
            ADD(live, -(long)malloc_usable_size(kept));
            free(kept);
        }
    }
}

int main(int argc, char **argv) { return truth_main(argc, argv); }
