// Floating point and integers: conditions over several lines, early ends, conversions.
#include <math.h>
#include <stdint.h>
#include <stdio.h>

enum { SIZE = 12 };

static double power(double base, unsigned exponent) {
    double result = 1;
    while (exponent) {
        if (exponent & 1)
            result *= base;
        base *= base;
        exponent >>= 1;
    }
    return result;
}

static int determinant(double m[SIZE][SIZE], double *result) {
    *result = 1;
    for (int column = 0; column < SIZE; column++) {
        int best = column;
        for (int row = column + 1; row < SIZE; row++)
            if (fabs(m[row][column]) >
                fabs(m[best][column]))
                best = row;
        if (m[best][column] == 0)
            return -1;
        if (best != column) {
            for (int i = 0; i < SIZE; i++) {
                double kept = m[best][i];
                m[best][i] = m[column][i];
                m[column][i] = kept;
            }
            *result = -*result;
        }
        *result *= m[column][column];
        for (int row = column + 1; row < SIZE; row++) {
            double by = m[row][column] / m[column][column];
            for (int i = column; i < SIZE; i++)
                m[row][i] -= by * m[column][i];
        }
    }
    return 0;
}

static uint64_t collatz(uint64_t n, uint64_t limit) {
    uint64_t steps = 0;
    while (n != 1 && steps < limit) {
        n = n % 2 ? 3 * n + 1 : n / 2;
        steps++;
    }
    return steps;
}

static int is_prime(unsigned n) {
    if (n < 2) return 0;
    for (unsigned d = 2; d * d <= n; d++)
        if (n % d == 0) return 0;
    return 1;
}

int main(void) {
    double m[SIZE][SIZE], found;
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++)
            m[i][j] = (i * 7 + j * 3) % 11 + (i == j);
    if (determinant(m, &found))
        printf("singular\n");
    uint64_t steps = 0;
    for (uint64_t n = 1; n < 50; n++)
        steps += collatz(n, n == 27 ? 100 : 1000);
    int primes = 0;
    for (unsigned n = 0; n < 200; n++) primes += is_prime(n);
    double sum = power(1.5, 10) + power(2, 0);
    unsigned clipped = sum > 1e9 ? UINT32_MAX : (unsigned)sum;
    printf("%.3f %lu %d %u\n", found, (unsigned long)steps, primes, clipped);
    return primes == 46 ? 0 : 1;
}
