/* Threads that execute the same lines at the same time. */
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 200000 };
static long total;

static long third(int i) {
    if (i % 3 == 0)
        return 1;
    return 0;
}

static void *adds(void *unused) {
    long sum = 0;
    for (int i = 0; i < ROUNDS; i++)
        sum += third(i);
    __atomic_add_fetch(&total, sum, __ATOMIC_RELAXED);
    return unused;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, adds, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%ld\n", total);
    return 0;
}
