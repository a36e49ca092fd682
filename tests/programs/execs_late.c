/* Computes in a function until it gets SIGUSR1, then becomes itself again and computes in another one until the next. They
 * differ, or the compiler makes them one. */
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t is_over;
static volatile unsigned long sink;

static void end(int signal) {
    (void)signal;
    is_over = 1;
}

#define COMPUTES(name, factor)                         \
    __attribute__((noinline)) static void name(void) { \
        while (!is_over)                               \
            for (int i = 0; i < 100000; i++)           \
                sink += i * factor;                    \
    }

COMPUTES(as_the_first, 3)
COMPUTES(as_the_second, 5)

int main(int argc, char **argv) {
    signal(SIGUSR1, end);
    if (argc > 1) {
        if (write(1, "again\n", 6) != 6)
            return 1;
        as_the_second();
        return 0;
    }
    if (write(1, "ready\n", 6) != 6)
        return 1;
    as_the_first();
    execl("/proc/self/exe", argv[0], "again", (char *)NULL);
    return 1;
}
