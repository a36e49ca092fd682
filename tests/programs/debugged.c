/* A program to be debugged: calls, a thread with its own variable, and a crash if it is asked for one. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static __thread int own = 7;
int total;

int add(int a, int b) {
    int sum = a + b;
    total += sum;
    return sum;
}

static void *work(void *argument) {
    own = 9;
    add(own, *(int *)argument);
    return NULL;
}

int main(int argc, char **argv) {
    for (int i = 0; i < 10; i++)
        add(i, argc);
    if (argc > 1 && strcmp(argv[1], "crash") == 0)
        *(volatile int *)8 = 1;
    if (argc > 1 && strcmp(argv[1], "wait") == 0) {
        printf("ready\n");
        fflush(stdout);
        while (read(0, &(char){0}, 1) > 0)
            add(1, 1);
    }
    pthread_t thread;
    pthread_create(&thread, NULL, work, &argc);
    pthread_join(thread, NULL);
    printf("%d\n", total);
    return 3;
}
