// A plugin that counts its calls in the memory of the program that has loaded it.
#include <stdatomic.h>

#ifdef OTHER
#define f g
#define plugged_calls other_calls
#endif

extern atomic_long plugged_calls;
static volatile long sum;

void f(long n);
void f(long n) {
    plugged_calls++;
    sum = sum + n;
}
