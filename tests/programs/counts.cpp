/* C++ that counts itself; see lockstep.h. Frames are left by exceptions, objects end while they are, and
 * functions are reached through tables. Methods have plain names, so that counts are found by them. */
#define FUNCTIONS(X)                                                                                       \
    X(thrower) X(passes_through) X(cleans_up) X(catches) X(rethrows) X(square_area) X(circle_area)         \
    X(constructs) X(destructs) X(sorts) X(compares) X(noexcept_leaf) X(throws_deep)
#include "lockstep.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual long area() const = 0;
};
struct Square : Shape {
    long side;
    explicit Square(long s) : side(s) {}
    APART long area() const override __asm__("square_area");
};
struct Circle : Shape {
    long radius;
    explicit Circle(long r) : radius(r) {}
    APART long area() const override __asm__("circle_area");
};
long Square::area() const {
    COUNT(square_area);
    return side * side;
}
long Circle::area() const {
    COUNT(circle_area);
    return 3 * radius * radius;
}

/* What the two of an object do is counted apart: compilers make several of each of them, of other names. */
extern "C" {
APART void constructs(long *depth) {
    COUNT(constructs);
    ++*depth;
}
APART void destructs(long *depth) {
    COUNT(destructs);
    --*depth;
}
}
struct Guard {
    long &depth;
    explicit Guard(long &d) : depth(d) { constructs(&depth); }
    ~Guard() { destructs(&depth); }
};

extern "C" {
APART long thrower(long x) {
    COUNT(thrower);
    if (x % 3 == 0) throw std::runtime_error("three");
    if (x % 3 == 1) throw x;
    return x;
}
APART long passes_through(long x) {
    COUNT(passes_through);
    return thrower(x) + 1;
}
APART long cleans_up(long x, long *depth) {
    COUNT(cleans_up);
    Guard guard(*depth);
    std::string text(40, 'x');
    return passes_through(x) + (long)text.size();
}
APART long rethrows(long x, long *depth) {
    COUNT(rethrows);
    try {
        return cleans_up(x, depth);
    } catch (const std::exception &) {
        throw;
    }
}
APART long catches(long x, long *depth) {
    COUNT(catches);
    try {
        return rethrows(x, depth);
    } catch (const std::runtime_error &error) {
        return -(long)std::string(error.what()).size();
    } catch (long number) {
        return -100 - number;
    }
}
/* Thrown through as many frames of itself as it is told. */
APART long throws_deep(int depth, long *ended) {
    COUNT(throws_deep);
    Guard guard(*ended);
    if (depth == 0) throw depth;
    long below = throws_deep(depth - 1, ended);
    __asm__ volatile("" : "+r"(below));
    return below;
}
APART bool compares(long a, long b) noexcept {
    COUNT(compares);
    return a > b;
}
APART long sorts(long x) {
    COUNT(sorts);
    std::vector<long> values;
    std::map<long, long> seen;
    for (long i = 0; i < 12; i++) values.push_back((x * 7 + i * 5) % 13), seen[values.back()]++;
    std::function<bool(long, long)> order = compares;
    std::sort(values.begin(), values.end(), order);
    return values.front() * 100 + (long)seen.size();
}
APART long noexcept_leaf(long x) noexcept {
    COUNT(noexcept_leaf);
    return x - 1;
}
}

static void one_round(unsigned long number) {
    long n = (long)(number % 1000), depth = 0;
    long expected = n % 3 == 0 ? -5 : n % 3 == 1 ? -100 - n : n + 41;
    check(catches(n, &depth) == expected && depth == 0, "catches");
    bool caught = false;
    try {
        throws_deep((int)(n % 9), &depth);
    } catch (int) {
        caught = true;
    }
    check(caught && depth == 0, "throws_deep");
    std::unique_ptr<Shape> shapes[] = {std::make_unique<Square>(n), std::make_unique<Circle>(n)};
    long area = 0;
    for (auto &shape : shapes) area += shape->area();
    check(area == 4 * n * n, "area");
    check(sorts(n) / 100 >= 11 && sorts(n) % 100 == 12, "sorts");
    check(noexcept_leaf(n) == n - 1, "noexcept_leaf");
}

int main(int argc, char **argv) { return lockstep_main(argc, argv); }
