// A loop that is busy as often as it is told, for breakpoints and watchpoints that are hit often.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

long rounds, counter;
volatile long level; // written all the time, with the same value
long rare;            // written every thousandth time
struct {
    long words[512];
} table; // too large for the processor's watchpoints

long __attribute__((noinline)) hot(long number) {
    counter += number & 3;
    level = 5;
    return counter;
}

void __attribute__((noinline)) seldom(long number) {
    rare = number;
    table.words[number / 1000 % 512] = number;
}

void __attribute__((noinline)) halfway(void) {
    __asm__ volatile("");
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atol(argv[1]) : 1000;
    long sum = 0;
    for (long number = 0; number < rounds; number++) {
        sum += hot(number);
        if (number % 1000 == 999) seldom(number);
        if (number == rounds / 2) halfway();
    }
    printf("%ld %ld\n", sum, rare);
    return 0;
}
