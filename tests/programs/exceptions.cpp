// Threads in which exceptions are in flight all the time. Works until its input ends.
#include <atomic>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static std::atomic<bool> finished;
static std::atomic<long> alive, broken;

struct Guard {
    Guard() { alive++; }
    ~Guard() { alive--; }
};

struct Failure : std::runtime_error {
    int depth;
    Failure(int depth) : std::runtime_error("failure " + std::to_string(depth)), depth(depth) {}
};

__attribute__((noinline)) static int fall(int depth, int bottom) {
    Guard guard;
    if (depth == bottom) throw Failure(bottom);
    try {
        return fall(depth + 1, bottom) + 1;
    } catch (const std::logic_error &) {
        broken++;
        return 0;
    }
}

static void throw_on_and_on() {
    for (int round = 0; round == 0 || !finished; round++) {
        int bottom = round % 20;
        auto owned = std::make_unique<std::string>("kept");
        try {
            fall(0, bottom);
            broken++;
        } catch (const Failure &failure) {
            if (failure.depth != bottom || failure.what() != "failure " + std::to_string(bottom)) broken++;
            try {
                throw;
            } catch (const std::exception &again) {
                if (&again != &failure) broken++;
            }
        }
        if (*owned != "kept") broken++;
    }
}

int main() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) threads.emplace_back(throw_on_and_on);
    std::puts("ready");
    std::fflush(stdout);
    char byte;
    if (read(0, &byte, 1) != 0) broken++;
    finished = true;
    for (auto &thread : threads) thread.join();
    std::printf("alive %ld, broken %ld\n", alive.load(), broken.load());
    return 7;
}
