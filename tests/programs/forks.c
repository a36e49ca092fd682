/* Forks, and executes itself anew from vfork and from posix_spawn; see lockstep.h.
 *
 * A forked child counts for itself and says through a pipe what it counted: that is printed as
 * "forked_" and the function's name. What a child of vfork calls runs in the parent's memory, so the parent
 * counts it. The children of exec count in a program of their own. */
#define _GNU_SOURCE
#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUNCTIONS(X) X(in_family) X(in_parent) X(before_exec) X(after_vfork)
static void print_children(void);
#define PRINT_MORE() print_children()
#include "lockstep.h"

extern char **environ;
static unsigned long forked[COUNTED];

static void print_children(void) {
    for (int i = 0; i < COUNTED; i++) printf(", \"forked_%s\": %lu", counted_names[i], forked[i]);
    memset(forked, 0, sizeof forked);
}

APART uint64_t in_family(uint64_t x) {
    COUNT(in_family);
    return x + 11;
}
APART uint64_t in_parent(uint64_t x) {
    COUNT(in_parent);
    return x + 13;
}
APART int before_exec(int code) {
    COUNT(before_exec);
    return code;
}
APART int after_vfork(int code) {
    COUNT(after_vfork);
    return code;
}

static int end_of(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0) check(errno == EINTR, "a child was lost");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void fork_once(unsigned long number) {
    int ends[2];
    check(pipe(ends) == 0, "no pipe");
    pid_t child = fork();
    check(child >= 0, "no fork");
    if (child == 0) {
        unsigned long mine[COUNTED];
        /* What the parent had counted before is not the child's. */
        memset(counts, 0, sizeof counts);
        for (unsigned i = 0; i < 5; i++)
            if (in_family(i) != i + 11) _exit(1);
        memcpy(mine, counts, sizeof mine);
        _exit(write(ends[1], mine, sizeof mine) == sizeof mine ? 3 : 1);
    }
    for (unsigned i = 0; i < 4; i++) check(in_family(i + number) == i + number + 11, "in_family");
    unsigned long theirs[COUNTED];
    check(read(ends[0], theirs, sizeof theirs) == sizeof theirs, "a child did not say what it counted");
    check(end_of(child) == 3, "a child did not end well");
    close(ends[0]), close(ends[1]);
    for (int i = 0; i < COUNTED; i++) __atomic_add_fetch(&forked[i], theirs[i], __ATOMIC_RELAXED);
}

static void exec_once(void) {
    char *arguments[] = {(char *)"forks", (char *)"child", NULL};
    /* What a child of vfork does in its parent's memory must be little, and volatile. */
    volatile pid_t child = vfork();
    if (child == 0) {
        before_exec(0);
        execv("/proc/self/exe", arguments);
        _exit(1);
    }
    after_vfork(0);
    check(child > 0 && end_of(child) == 5, "a program after vfork did not end well");
    pid_t spawned;
    check(posix_spawn(&spawned, "/proc/self/exe", NULL, NULL, arguments, environ) == 0, "no spawn");
    check(end_of(spawned) == 5, "a spawned program did not end well");
}

static void one_round(unsigned long number) {
    check(in_parent(number) == number + 13, "in_parent");
    fork_once(number);
    exec_once();
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        for (unsigned i = 0; i < 3; i++) check(in_family(i) == i + 11 && in_parent(i) == i + 13, "a child");
        return 5;
    }
    return lockstep_main(argc, argv);
}
