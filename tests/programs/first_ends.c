/* The first thread ends before the other one, which has a name that would forge a line and waits for data for ever. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((noipa)) void in_read(int descriptor) {
    char byte;
    if (read(descriptor, &byte, 1) < 0) abort();
}

static void *wait_for_data(void *unused) {
    int ends[2];
    if (pipe(ends)) abort();
    prctl(PR_SET_NAME, "a\nthread 1 b");
    puts("ready");
    fflush(stdout);
    in_read(ends[0]);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_data, NULL);
    pthread_exit(NULL);
}
