// Answers queries with memory from an arena, which each query gives back to the system.
#include "program.h"

namespace {

constexpr size_t SIZE = 8 << 20;

class Arena {
  public:
    Arena()
        : memory(static_cast<unsigned char *>(mmap(
              nullptr, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}

    [[gnu::noinline]] unsigned char *take(size_t size) {
        unsigned char *block = memory + used;
        used += size;
        for (size_t place = 0; place < size; place += 1024)
            block[place] = 1;
        return block;
    }

    [[gnu::noinline]] void reset() {
        madvise(memory, SIZE, MADV_DONTNEED);
        used = 0;
    }

  private:
    unsigned char *memory;
    size_t used = 0;
};

[[gnu::noinline]] unsigned run_query(Arena &arena, uint64_t *state) {
    unsigned sum = 0;
    for (size_t used = 0; used + 65536 < SIZE; used += 65536)
        sum += arena.take(65536)[next_random(state) % 65536];
    return sum;
}

}  // namespace

int main(int, char **argv) {
    count_in(argv[1]);
    use_small_pages();
    Arena arena;
    uint64_t state = 88172645463325252u;
    volatile unsigned sum = 0;
    for (;;) {
        sum = sum + run_query(arena, &state);
        arena.reset();
        count(1);
    }
}
