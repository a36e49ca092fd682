// Exceptions through many frames, out of signal handlers, across threads; and virtual calls.
#include "check.h"
#include <csignal>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

int destroyed;
struct Guard {
    ~Guard() { destroyed++; }
};

APART void sink(int depth) {
    Guard guard;
    if (depth == 0) throw std::runtime_error("from below");
    sink(depth - 1);
    asm volatile("" ::: "memory"); // no tail call
}

struct Shape {
    virtual ~Shape() = default;
    virtual int area(int x) const = 0;
};
struct Named {
    virtual ~Named() = default;
    virtual std::string name() const = 0;
};
struct Square : Shape, Named {
    int area(int x) const override { return x * x; }
    std::string name() const override { return "square"; }
};
struct Line : Shape {
    int area(int) const override { return 0; }
};
struct Room : Square {
    int area(int x) const override { return Square::area(x) + 1; }
};

void throw_from_handler(int number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    throw number;
}

APART int reads(volatile int *place) {
    Guard guard;
    return *place;
}

} // namespace

CASE(through_many_frames) {
    long caught = 0;
    for (int depth = 0; depth < 200; depth++) try {
            sink(depth);
        } catch (const std::exception &error) {
            caught += std::string(error.what()) == "from below";
        }
    std::printf("%ld %d\n", caught, destroyed);
}

CASE(by_type) {
    int kinds[4] = {};
    for (int i = 0; i < 400; i++) try {
            try {
                if (i % 4 == 0) throw i;
                if (i % 4 == 1) throw std::string("text");
                if (i % 4 == 2) throw std::out_of_range("range");
                throw 1.5;
            } catch (const std::logic_error &) {
                kinds[2]++;
                throw;
            } catch (const std::string &) {
                kinds[1]++;
            }
        } catch (int) {
            kinds[0]++;
        } catch (const std::out_of_range &) {
            kinds[2]++;
        } catch (...) {
            kinds[3]++;
        }
    std::printf("%d %d %d %d\n", kinds[0], kinds[1], kinds[2], kinds[3]);
}

CASE(virtual_calls) {
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 300; i++)
        if (i % 3 == 0)
            shapes.push_back(std::make_unique<Square>());
        else if (i % 3 == 1)
            shapes.push_back(std::make_unique<Line>());
        else
            shapes.push_back(std::make_unique<Room>());
    long sum = 0, named = 0;
    for (int round = 0; round < 300; round++)
        for (const auto &shape : shapes) {
            sum += shape->area(round);
            if (const auto *has = dynamic_cast<const Named *>(shape.get()))
                named += static_cast<long>(has->name().size());
        }
    std::printf("%ld %ld\n", sum, named);
}

CASE(from_a_handler) {
    struct sigaction action = {};
    action.sa_handler = throw_from_handler;
    sigaction(SIGSEGV, &action, nullptr);
    int caught = 0;
    for (int i = 0; i < 200; i++) try {
            reads(nullptr);
        } catch (int number) {
            caught += number == SIGSEGV;
        }
    std::printf("%d %d\n", caught, destroyed);
}

CASE(across_threads) {
    int caught = 0;
    for (int i = 0; i < 20; i++) {
        std::exception_ptr pointer;
        std::thread thread([&] {
            try {
                sink(20);
            } catch (...) {
                pointer = std::current_exception();
            }
        });
        thread.join();
        try {
            std::rethrow_exception(pointer);
        } catch (const std::runtime_error &) {
            caught++;
        }
    }
    std::printf("%d\n", caught);
}

CASE(terminate) {
    std::set_terminate([] {
        std::puts("nobody catches this");
        std::_Exit(9);
    });
    sink(3);
}
