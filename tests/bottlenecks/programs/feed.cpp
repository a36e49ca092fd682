// A subscriber takes what a feed publishes, as soon as it is there.
#include <sched.h>

#include <atomic>
#include <thread>

#include "program.h"

namespace {

std::atomic<uint64_t> published;
uint64_t items[1024];

[[gnu::noinline]] uint64_t await_item(uint64_t number) {
    while (published.load(std::memory_order_acquire) <= number)
        sched_yield();
    return items[number % 1024];
}

void subscribe() {
    volatile uint64_t sum = 0;
    for (uint64_t number = published;; number++)
        sum = sum + await_item(number);
}

}  // namespace

int main(int, char **argv) {
    count_in(argv[1]);
    std::thread(subscribe).detach();
    for (uint64_t number = 0;; number++) {
        nap_us(2000);
        items[number % 1024] = number;
        published.store(number + 1, std::memory_order_release);
        count(1);
    }
}
