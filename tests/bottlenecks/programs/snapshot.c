// A store that saves itself by a child process while it goes on writing, then waits for the child.
#include <signal.h>
#include <sys/wait.h>

#include "program.h"

enum { PAGE = 4096, PAGES = 24000 };

static unsigned char *store;

__attribute__((noinline)) static void update_pages(uint64_t *state) {
    for (int i = 0; i < PAGES; i++)
        store[(size_t)i * PAGE + next_random(state) % PAGE]++;
}

__attribute__((noinline)) static void await_saved(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child)
        abort();
}

int main(int argc, char **argv) {
    (void)argc;
    count_in(argv[1]);
    use_small_pages();
    store = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t state = 88172645463325252u;
    update_pages(&state);
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            nap_us(160000);
            _exit(0);
        }
        update_pages(&state);
        await_saved(child);
        count(1);
    }
}
