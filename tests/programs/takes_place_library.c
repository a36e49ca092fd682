/* One of two libraries that are the same but for the name of a function. */
__attribute__((noipa)) void INNER(void (*call)(void)) {
    call();
    __asm__ volatile("");
}
void run(void (*call)(void)) {
    INNER(call);
    __asm__ volatile("");
}
