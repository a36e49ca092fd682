/* A function without unwind tables, which leaves the frame pointer alone, is between others that have both: by frame
 * pointers alone, its caller is not found. */
#include <unistd.h>

__attribute__((noinline)) void look(void) { __asm__ volatile(""); }

__attribute__((noinline)) void calls_look(void) {
    look();
    __asm__ volatile("");
}

void has_no_tables(void);
__asm__(".globl has_no_tables\n"
        ".type has_no_tables, @function\n"
        "has_no_tables:\n"
        "    sub $8, %rsp\n"
        "    call calls_look\n"
        "    add $8, %rsp\n"
        "    ret\n"
        ".size has_no_tables, . - has_no_tables\n");

__attribute__((noinline)) void is_skipped(void) {
    has_no_tables();
    __asm__ volatile("");
}

int main(void) {
    char byte;
    /* Until it is told to begin. */
    if (read(0, &byte, 1) != 0)
        return 1;
    for (int i = 0; i < 3; i++)
        is_skipped();
    return 0;
}
