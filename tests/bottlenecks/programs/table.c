// A table of records of all sizes, in which old records make place for new ones.
#include <string.h>

#include "program.h"

enum { RECORDS = 30000, STEPS = 1000 };

struct record {
    uint32_t size;
    unsigned char body[];
};

static struct record *records[RECORDS];

__attribute__((noinline)) static void replace_record(uint64_t random) {
    struct record **place = &records[random % RECORDS];
    free(*place);
    uint32_t size = 24u << (random >> 32) % 8;
    size += (uint32_t)(random >> 40) % size;
    *place = malloc(sizeof **place + size);
    (*place)->size = size;
    (*place)->body[0] = (unsigned char)random;
}

int main(int argc, char **argv) {
    (void)argc;
    count_in(argv[1]);
    uint64_t state = 88172645463325252u;
    for (;;) {
        for (int i = 0; i < STEPS; i++)
            replace_record(next_random(&state));
        count(1);
    }
}
