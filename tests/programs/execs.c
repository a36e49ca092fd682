/* Starts two threads that wait, and becomes itself again: so often, with as many threads to end each time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *wait_for_ever(void *unused) {
    pause();
    return unused;
}

int main(int count, char **words) {
    int rest = count > 1 ? atoi(words[1]) : 0;
    char next[16];
    pthread_t thread;
    for (int one = 0; one < 2; one++) pthread_create(&thread, NULL, wait_for_ever, NULL);
    usleep(300);
    if (rest == 0) return 42;
    snprintf(next, sizeof next, "%d", rest - 1);
    execl("/proc/self/exe", words[0], next, NULL);
    return 1;
}
