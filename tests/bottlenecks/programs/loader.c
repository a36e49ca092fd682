// Loads a table of numbers from a file, again and again, as a service that watches its settings.
#include <string.h>

#include "program.h"

__attribute__((noinline)) static int next_char(int file) {
    unsigned char c;
    return read(file, &c, 1) == 1 ? c : -1;
}

__attribute__((noinline)) static uint64_t load_table(int file) {
    uint64_t sum = 0, number = 0;
    lseek(file, 0, SEEK_SET);
    for (int c; (c = next_char(file)) >= 0;) {
        if (c == '\n') {
            sum += number;
            number = 0;
        } else {
            number = number * 10 + (uint64_t)(c - '0');
        }
    }
    return sum;
}

int main(int argc, char **argv) {
    (void)argc;
    count_in(argv[1]);
    int file = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 1000; i++)
        dprintf(file, "%d\n", i * 7919);
    uint64_t sum = 0;
    for (;;) {
        sum += load_table(file);
        count(1);
    }
    return (int)sum;
}
