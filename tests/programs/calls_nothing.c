/* Calls a function pointer that is null, and waits in the handler of the signal that this sends. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define apart __attribute__((noipa))

void (*volatile nothing)(void);

apart void on_signal(int number) {
    (void)number;
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
apart void calls_nothing(void) {
    nothing();
    __asm__ volatile("");
}

int main(void) {
    signal(SIGSEGV, on_signal);
    calls_nothing();
    return 0;
}
