/* Naps and computes by turns, two thousand calls deep, for as many microseconds as its first argument says. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int nap;

__attribute__((noinline, noclone)) int in_recursion(int depth) {
    volatile char room[300];
    room[0] = depth;
    if (depth == 0) {
        while (nap) {
            usleep(nap);
            for (volatile int i = 0; i < 3 * nap; i++);
        }
        return 0;
    }
    return in_recursion(depth - 1) + room[0];
}

int main(int count, char **words) {
    nap = count > 1 ? atoi(words[1]) : 1000;
    puts("ready");
    fflush(stdout);
    return in_recursion(2000);
}
