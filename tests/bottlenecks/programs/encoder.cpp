// Encodes with six threads on the processor that it was given.
#include <sched.h>

#include <thread>
#include <vector>

#include "program.h"

namespace {

[[gnu::noinline]] uint64_t encode_block(const std::vector<uint32_t> &block) {
    uint64_t low = 0, range = ~0u;
    for (int pass = 0; pass < 16; pass++)
        for (uint32_t symbol : block) {
            low = (low << 5 | low >> 59) ^ (range * (symbol | 1));
            range = range * 6364136223846793005u + low;
        }
    return low;
}

void encode(uint64_t seed) {
    uint64_t state = 88172645463325252u + seed;
    std::vector<uint32_t> block(4096);
    for (auto &symbol : block)
        symbol = static_cast<uint32_t>(next_random(&state));
    volatile uint64_t sum = 0;
    for (;;) {
        sum = sum + encode_block(block);
        count(1);
    }
}

}  // namespace

int main(int, char **argv) {
    count_in(argv[1]);
    cpu_set_t processors;
    CPU_ZERO(&processors);
    CPU_SET(1, &processors);
    sched_setaffinity(0, sizeof processors, &processors);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 6; i++)
        threads.emplace_back(encode, i);
    threads[0].join();
}
