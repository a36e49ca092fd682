/* Children that have borrowed the memory map and unmap until they are killed. The parent goes on each time. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 40

int main(void) {
    int pids[2];
    if (pipe(pids)) return 1;
    pid_t killer = fork();
    if (!killer) {
        pid_t pid;
        close(pids[1]);
        for (unsigned round = 0; read(pids[0], &pid, sizeof pid) == sizeof pid; round++) {
            for (volatile unsigned i = 0; i < 20000 + round * 7919 % 50000; i++) {}
            kill(pid, SIGKILL);
        }
        _exit(0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = vfork();
        if (!child) {
            pid_t self = getpid();
            if (write(pids[1], &self, sizeof self) != sizeof self) _exit(1);
            for (;;) {
                void *memory = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                munmap(memory, 1 << 16);
            }
        }
        int status;
        if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return 1;
    }
    close(pids[1]);
    waitpid(killer, NULL, 0);
    printf("%d\n", ROUNDS);
    return 0;
}
