/* Says that it is ready, then waits for the end of its input. */
#include <stdio.h>

__attribute__((noinline)) int wait_for_end(void) {
    return getchar();
}

int main(void) {
    puts("ready");
    fflush(stdout);
    while (wait_for_end() != EOF) {
    }
    return 0;
}
