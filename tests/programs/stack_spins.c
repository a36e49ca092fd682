/* A thread that does nothing but call a function, and one that sleeps; prints "ready". */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define apart __attribute__((noinline, noclone))

/* Too long to be moved away as a whole by a probe. */
apart int innermost(int number) {
    for (int round = 0; round < 9; round++) {
        number = number * 3 + round;
        __asm__ volatile("" : "+r"(number)::"memory");
    }
    return number;
}

apart void spins(void) {
    for (volatile int number = 0;;) number = innermost(number);
}

apart void *begin(void *unused) {
    spins();
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, begin, NULL);
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
