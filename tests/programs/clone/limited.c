// Limits its own memory, to more than it needs, and uses some.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1UL << 20)

static int limit(int what, unsigned long mib) {
    struct rlimit limits = {mib * MIB, RLIM_INFINITY};
    return setrlimit(what, &limits);
}

static int use(int mib) {
    for (int i = 0; i < mib; i++) {
        char *block = malloc(MIB);
        if (!block) {
            printf("no memory after %d MiB\n", i);
            return 1;
        }
        memset(block, 1, MIB);
    }
    printf("used %d MiB\n", mib);
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    if (!strcmp(argv[1], "space")) return limit(RLIMIT_AS, 200) || use(50);
    if (!strcmp(argv[1], "data")) return limit(RLIMIT_DATA, 56) || use(50);
    if (!strcmp(argv[1], "roomy")) return limit(RLIMIT_AS, 16384) || limit(RLIMIT_DATA, 4096) || use(50);
    if (!strcmp(argv[1], "prlimit")) {
        struct rlimit limits = {200 * MIB, RLIM_INFINITY}, old;
        if (prlimit(getpid(), RLIMIT_AS, &limits, &old) || prlimit(0, RLIMIT_AS, NULL, &old)) return 1;
        return old.rlim_cur != 200 * MIB || use(50);
    }
    // In a child, before it is another program.
    pid_t child = !strcmp(argv[1], "fork") ? fork() : vfork();
    if (!child) {
        if (limit(RLIMIT_AS, 200)) _exit(2);
        execl("/proc/self/exe", argv[0], "prlimit", NULL);
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) || use(50);
}
