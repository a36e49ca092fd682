// Eight lanes fill one buffer on the processor that they share.
#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

#include "program.h"

namespace {

std::atomic<bool> buffer_taken;
uint64_t buffer[4096];

[[gnu::noinline]] void take_buffer() {
    while (buffer_taken.exchange(true, std::memory_order_acquire)) {
    }
}

[[gnu::noinline]] void fill_buffer(uint64_t *state) {
    for (auto &word : buffer)
        word += next_random(state);
}

void lane(uint64_t seed) {
    uint64_t state = 88172645463325252u + seed;
    for (;;) {
        take_buffer();
        fill_buffer(&state);
        buffer_taken.store(false, std::memory_order_release);
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
    for (uint64_t i = 0; i < 8; i++)
        threads.emplace_back(lane, i);
    threads[0].join();
}
