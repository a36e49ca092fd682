/* Calls a function, and becomes `sleep` for as long as it is told. */
#include <unistd.h>

__attribute__((noinline)) int work(int i) {
    __asm__ volatile("nop; nop; nop; nop");
    return i + 1;
}

int main(int argc, char **argv) {
    for (int i = 0; i < 10; i++)
        work(i);
    if (argc > 1)
        execlp("sleep", "sleep", argv[1], (char *)0);
    return 0;
}
