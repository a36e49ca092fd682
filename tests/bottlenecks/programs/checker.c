// Checks words with a helper of its own, as editors do: one line to it, one line back.
#include <signal.h>
#include <string.h>

#include "program.h"

static void serve(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "dictionary");
    char word[64];
    for (;;) {
        ssize_t size = read(0, word, sizeof word);
        if (size <= 0)
            _exit(0);
        nap_us(4000);
        if (write(1, word, (size_t)size) != size)
            _exit(1);
    }
}

__attribute__((noinline)) static int check_word(int to, int from, const char *word) {
    char answer[64];
    size_t size = strlen(word);
    if (write(to, word, size) != (ssize_t)size)
        abort();
    ssize_t got = read(from, answer, sizeof answer);
    return got == (ssize_t)size && memcmp(word, answer, size) == 0;
}

int main(int argc, char **argv) {
    (void)argc;
    count_in(argv[1]);
    int to[2], from[2];
    if (pipe(to) < 0 || pipe(from) < 0)
        abort();
    if (fork() == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        serve();
    }
    uint64_t state = 88172645463325252u;
    char word[32];
    for (;;) {
        snprintf(word, sizeof word, "word%lu\n", (unsigned long)(next_random(&state) % 100000));
        if (!check_word(to[1], from[0], word))
            abort();
        count(1);
    }
}
