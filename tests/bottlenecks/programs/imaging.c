// Decodes pictures, each into a buffer of its own.
#include "program.h"

enum { SIZE = 6 << 20 };

__attribute__((noinline)) static unsigned char *new_frame(void) {
    void *frame =
        mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (frame == MAP_FAILED)
        abort();
    return frame;
}

__attribute__((noinline)) static uint64_t decode(unsigned char *frame, uint64_t *state) {
    uint64_t sum = 0;
    for (size_t place = 0; place < SIZE; place += 512) {
        frame[place] = (unsigned char)next_random(state);
        sum += frame[place];
    }
    return sum;
}

int main(int argc, char **argv) {
    (void)argc;
    count_in(argv[1]);
    use_small_pages();
    uint64_t state = 88172645463325252u, sum = 0;
    for (;;) {
        unsigned char *frame = new_frame();
        sum += decode(frame, &state);
        munmap(frame, SIZE);
        count(1);
    }
    return (int)sum;
}
