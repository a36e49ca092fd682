// Renders a picture by rows, with a thread for each of sixteen bands.
#include <pthread.h>

#include "program.h"

enum { BANDS = 16, WIDTH = 512, DEPTH = 200 };

__attribute__((noinline)) static int render_row(double y) {
    int sum = 0;
    for (int i = 0; i < WIDTH; i++) {
        double x = -2 + 3.0 * i / WIDTH, a = 0, b = 0;
        int n = 0;
        while (n < DEPTH && a * a + b * b < 4) {
            double next = a * a - b * b + x;
            b = 2 * a * b + y;
            a = next;
            n++;
        }
        sum += n;
    }
    return sum;
}

static void *band(void *argument) {
    volatile long sum = 0;
    double top = -1 + 2.0 * (double)(uintptr_t)argument / BANDS;
    for (;;)
        for (int row = 0; row < 32; row++) {
            sum += render_row(top + row * 2.0 / BANDS / 32);
            count(1);
        }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    count_in(argv[1]);
    pthread_t threads[BANDS];
    for (uintptr_t i = 0; i < BANDS; i++)
        pthread_create(&threads[i], NULL, band, (void *)i);
    pthread_join(threads[0], NULL);
}
