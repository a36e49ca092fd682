// A thread that waits for a std::mutex which another holds.
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <pthread.h>
#include <thread>

std::mutex held;
std::condition_variable condition;

int main() {
    std::unique_lock<std::mutex> guard(held);
    std::thread mutex([] {
        pthread_setname_np(pthread_self(), "mutex");
        std::lock_guard<std::mutex> other(held);
    });
    std::thread waits([] {
        pthread_setname_np(pthread_self(), "condition");
        std::mutex own;
        std::unique_lock<std::mutex> other(own);
        condition.wait(other, [] { return false; });
    });
    std::puts("ready");
    std::fflush(stdout);
    std::getchar();
    std::puts("done");
    std::fflush(stdout);
    std::_Exit(0);
}
