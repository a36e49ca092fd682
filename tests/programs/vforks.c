/* A thread waits in vfork for its child, which reads; another one runs, and notes for how long it ever stood still. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define apart __attribute__((noipa))

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

apart static void in_child(void) {
    char byte;
    /* Until the parent's input ends. */
    while (read(0, &byte, 1) > 0) {
    }
    _exit(0);
}
apart void in_vfork(void) {
    if (vfork() == 0) in_child();
    __asm__ volatile("" ::: "memory");
}
static void *wait_for_child(void *unused) {
    in_vfork();
    return unused;
}

static volatile int goes_on = 1;

static void *run(void *longest) {
    double last = now();
    while (goes_on) {
        double next = now();
        if (next - last > *(double *)longest) *(double *)longest = next - last;
        last = next;
    }
    return NULL;
}

int main(void) {
    pthread_t waits, runs;
    double longest = 0;
    pthread_create(&runs, NULL, run, &longest);
    pthread_create(&waits, NULL, wait_for_child, NULL);
    puts("ready");
    fflush(stdout);
    pthread_join(waits, NULL);
    goes_on = 0;
    pthread_join(runs, NULL);
    printf("%.3f\n", longest);
    return 0;
}
