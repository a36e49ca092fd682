/* Four threads that compute, and now and then add to a sum under a lock; prints the sum. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sum, rounds;

static void *work(void *seed) {
    uint64_t x = (uint64_t)(uintptr_t)seed;
    for (uint64_t i = 0; i < rounds; i++) {
        for (int k = 0; k < 200; k++) x = x * 6364136223846793005u + (x >> 29) + (uint64_t)k;
        pthread_mutex_lock(&lock);
        sum += x >> 33;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(int argc, char **argv) {
    rounds = (argc > 1 ? strtoull(argv[1], NULL, 10) : 100) * 10000;
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
