// Serves prices from a table that one thread renews and four threads read.
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "program.h"

namespace {

std::shared_mutex prices_lock;
std::vector<long> prices(4096);

[[gnu::noinline]] void renew_prices(uint64_t *state) {
    std::unique_lock<std::shared_mutex> hold(prices_lock);
    for (auto &price : prices)
        price = static_cast<long>(next_random(state) % 1000);
    // The exchange sends the rest of its table.
    nap_us(8000);
}

[[gnu::noinline]] long read_price(uint64_t *state) {
    std::shared_lock<std::shared_mutex> hold(prices_lock);
    return prices[next_random(state) % prices.size()];
}

void serve(uint64_t seed) {
    uint64_t state = 88172645463325252u + seed;
    volatile uint64_t sum = 0;
    for (;;) {
        sum = sum + static_cast<uint64_t>(read_price(&state));
        for (int i = 0; i < 5000; i++)
            sum = sum + next_random(&state);
        count(1);
        // The next request comes soon.
        nap_us(200);
    }
}

}  // namespace

int main(int, char **argv) {
    count_in(argv[1]);
    for (uint64_t i = 0; i < 4; i++)
        std::thread(serve, i).detach();
    uint64_t state = 88172645463325252u;
    for (;;) {
        renew_prices(&state);
        nap_us(1000);
    }
}
