// Exceptions and threads of known number. See truth.h.
#define VALUES(X) X(thrown) X(deep_thrown) X(started)
#include "truth.h"

#include <stdexcept>

APART void throws_deep(int depth) {
    if (depth == 0) {
        ADD(thrown, 1);
        ADD(deep_thrown, 1);
        throw std::runtime_error("deep");
    }
    throws_deep(depth - 1);
}

// What is thrown again is the same exception.
APART void throws_again() {
    try {
        try {
            ADD(thrown, 1);
            throw 42;
        } catch (int) {
            throw;
        }
    } catch (int number) {
        check(number == 42, "another number");
    }
}

APART void *lives(void *argument) { return argument; }

APART void starts() {
    pthread_t thread;
    check(!pthread_create(&thread, nullptr, lives, nullptr), "no thread");
    ADD(started, 1);
    check(!pthread_join(thread, nullptr), "no end");
}

static void work(long amount) {
    for (long i = 0; i < amount; i++) {
        try {
            throws_deep(3);
        } catch (const std::runtime_error &) {
            throws_again();
        }
        starts();
    }
}

int main(int argc, char **argv) { return truth_main(argc, argv); }
