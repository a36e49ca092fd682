#include "results.h"
#include <stdio.h>

FUNCTION int gives_int(void) { return seed; }
FUNCTION int *gives_pointer(void) { return &place + seed - 3; }
FUNCTION enum color gives_enum(void) { return seed ? GREEN : RED; }
FUNCTION struct mixed gives_mixed(void) { return (struct mixed){seed, 1.5f}; }
FUNCTION union either gives_union(void) { return (union either){.number = seed}; }
FUNCTION void gives_nothing(void) { seed = 3; }
FUNCTION float gives_float(void) { return (float)seed; }
FUNCTION precise gives_named_double(void) { return seed; }
FUNCTION long double gives_long_double(void) { return seed; }
FUNCTION _Complex double gives_complex(void) { return seed; }
FUNCTION struct floats gives_floats(void) { return (struct floats){(float)seed, 2}; }
FUNCTION struct pair gives_pair(void) { return (struct pair){seed, 2}; }
FUNCTION struct large gives_large(void) { return (struct large){{seed}}; }
FUNCTION vector gives_vector(void) { return (vector){seed, 1, 2, 3}; }
FUNCTION __int128 gives_wide(void) { return seed; }

int main(void) {
    char line[16];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        gives_nothing();
        int others = (int)(gives_float() + gives_named_double() + gives_long_double() + __real__ gives_complex() +
                           gives_floats().x + gives_pair().first + gives_large().words[0] + gives_vector()[0] +
                           (int)gives_wide());
        printf("%d %d %d %d %d %d\n", gives_int(), gives_pointer() == &place, (int)gives_enum(), gives_mixed().number,
               gives_union().number, others);
        fflush(stdout);
    }
    return 0;
}
