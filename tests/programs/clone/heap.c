/* Has its heap grow: the kernel puts it up to a gigabyte above the program, elsewhere in each run. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <unistd.h>

enum { GROWTH = 256 << 20 };

int main(void) {
    char *end = sbrk(0);
    if (brk(end + GROWTH) != 0) {
        perror("brk");
        return 1;
    }
    end[GROWTH - 1] = 1;
    return 0;
}
