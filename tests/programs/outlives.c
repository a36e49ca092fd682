/* A child that outlives its parent: both call mark() so many times, then the parent ends. The child goes
 * on when its standard input ends, calls mark() as often once more, and ends. With a second argument the
 * parent waits for it. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long marked;

__attribute__((noipa)) void mark(void) { marked += marked & 1 ? 3 : 5; }

static void marks(long count) {
    for (long i = 0; i < count; i++) mark();
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 1;
    int done[2];
    char byte;
    if (pipe(done)) return 1;
    pid_t child = fork();
    if (child < 0) return 1;
    if (!child) {
        close(1);
        close(2);
        marks(count);
        if (write(done[1], "", 1) != 1) _exit(1);
        while (read(0, &byte, 1) > 0) continue;
        marks(count);
        _exit(0);
    }
    if (read(done[0], &byte, 1) != 1) return 1;
    marks(count);
    if (argc > 2 && waitpid(child, NULL, 0) != child) return 1;
    return 7;
}
