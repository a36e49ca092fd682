/* As many threads at once as it is told: each is counted once. */
#include <pthread.h>
#include <stdlib.h>

static pthread_barrier_t barrier;
static volatile long sum;

__attribute__((noipa)) void body(void) { sum += 1; }

static void *thread(void *unused) {
    body();
    pthread_barrier_wait(&barrier);
    return unused;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t last;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    pthread_barrier_init(&barrier, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++) {
        if (pthread_create(&last, &attributes, thread, NULL)) return 1;
    }
    pthread_barrier_wait(&barrier);
    return 0;
}
