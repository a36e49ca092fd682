// Waits until its input ends, with a thread that waits, too.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *unused) {
    pthread_mutex_lock(&held);
    pthread_mutex_unlock(&held);
    return unused;
}

static long read_all(void) {
    char buffer[64];
    long total = 0;
    for (ssize_t count; (count = read(0, buffer, sizeof buffer)) > 0;) total += count;
    return total;
}

int main(void) {
    pthread_t thread;
    pthread_mutex_lock(&held);
    pthread_create(&thread, NULL, work, NULL);
    puts("ready");
    fflush(stdout);
    read_all();
    pthread_mutex_unlock(&held);
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
