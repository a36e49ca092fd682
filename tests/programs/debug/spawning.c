// A program that starts others in each way there is, some of which leave a line in a file.
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(const char *path, const char *line) {
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0 || write(file, line, strlen(line)) < 0) abort();
    close(file);
}

static int end_of(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child) abort();
    return WEXITSTATUS(status);
}

static int by_fork(const char *path) {
    pid_t child = fork();
    if (child == 0) {
        leave(path, "forked\n");
        _exit(3);
    }
    return end_of(child);
}

static int by_vfork(void) {
    pid_t child = vfork();
    if (child == 0) _exit(4);
    return end_of(child);
}

static int by_spawn(char *path) {
    char *words[] = {"/bin/sh", "-c", "echo spawned >> $0; exit 5", path, NULL};
    pid_t child;
    if (posix_spawn(&child, words[0], NULL, NULL, words, NULL)) abort();
    return end_of(child);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    int sum = by_fork(argv[1]) + by_vfork() + by_spawn(argv[1]);
    return sum == 12 ? 0 : 1;
}
