/* Runs in three functions for known shares of its time, until it has run for as many milliseconds as its first argument
   says; then it prints for how many seconds each has run, by the clock of its thread, and how long it ran in all. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double own_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static double spin(double seconds)
{
    double began = own_time(), now = began;
    while (now - began < seconds) {
        for (volatile int i = 0; i < 2000; i++)
            ;
        now = own_time();
    }
    return now - began;
}

__attribute__((noinline)) double sixty(void)
{
    double ran = spin(0.006);
    /* No jump to spin instead of a call. */
    __asm__ volatile("" ::: "memory");
    return ran;
}

__attribute__((noinline)) double thirty(void)
{
    double ran = spin(0.003);
    __asm__ volatile("" ::: "memory");
    return ran;
}

__attribute__((noinline)) double ten(void)
{
    double ran = spin(0.001);
    __asm__ volatile("" ::: "memory");
    return ran;
}

int main(int count, char **words)
{
    double end = count > 1 ? atof(words[1]) / 1000 : 1.0;
    double ran[3] = {0, 0, 0};
    while (own_time() < end) {
        ran[0] += sixty();
        ran[1] += thirty();
        ran[2] += ten();
    }
    printf("%f %f %f %f\n", ran[0], ran[1], ran[2], own_time());
    return count > 2 ? atoi(words[2]) : 0;
}
