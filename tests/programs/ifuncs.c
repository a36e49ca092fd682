/* Calls indirect functions, which the loader binds to one of several implementations.
 *
 * It obeys the letters of its standard input, and answers each with one:
 *
 *   c   calls each of the functions below as often as the constants say
 *   q   ends with the exit code 7
 *
 * Nothing else is called meanwhile that could call one of them: input and output are plain system calls. */
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { COPIES = 1000, OLD_COPIES = 300, LENGTHS = 700, SEARCHES = 200, OWN = 500 };

#ifndef STATIC
/* What programs were linked to before 2012. */
__asm__(".symver old_memcpy, memcpy@GLIBC_2.2.5");
void *old_memcpy(void *, const void *, size_t);
#endif

static char from[64] = "hay and hay and a needle and hay", to[64];

__attribute__((noipa)) int own_first(int x) { return x + 1; }
__attribute__((noipa)) int own_second(int x) { return x + 2; }

static int (*choose(void))(int) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse2") ? own_second : own_first;
}

__attribute__((ifunc("choose"))) int own(int x);

__attribute__((noipa)) static void calls(void) {
    volatile size_t length = 32;
    volatile int sum = 0;
    for (int i = 0; i < COPIES; i++) memcpy(to, from, length);
#ifndef STATIC
    for (int i = 0; i < OLD_COPIES; i++) old_memcpy(to, from, length);
#endif
    for (int i = 0; i < LENGTHS; i++) sum += (int)strlen(from);
    for (int i = 0; i < SEARCHES; i++) sum += strstr(from, "needle") != NULL;
    for (int i = 0; i < OWN; i++) sum += own(i);
}

int main(void) {
    char letter = 'r';
    do {
        if (letter == 'c') calls();
        if (letter == 'q') return 7;
        if (write(1, &letter, 1) != 1) return 1;
    } while (read(0, &letter, 1) == 1);
    return 0;
}
