// Virtual calls on a mixed collection and a map that is read and changed; prints sums.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct Node {
    virtual ~Node() = default;
    virtual std::uint64_t value(std::uint64_t x) const = 0;
};
struct Plus : Node {
    std::uint64_t n;
    explicit Plus(std::uint64_t n) : n(n) {}
    std::uint64_t value(std::uint64_t x) const override { return x + n; }
};
struct Times : Node {
    std::uint64_t n;
    explicit Times(std::uint64_t n) : n(n | 1) {}
    std::uint64_t value(std::uint64_t x) const override { return x * n; }
};
struct Mixed : Node {
    std::uint64_t value(std::uint64_t x) const override { return x ^ x >> 13; }
};
struct Sum : Node {
    std::unique_ptr<Node> left, right;
    Sum(std::unique_ptr<Node> l, std::unique_ptr<Node> r) : left(std::move(l)), right(std::move(r)) {}
    std::uint64_t value(std::uint64_t x) const override { return left->value(x) + right->value(x); }
};

static std::unique_ptr<Node> grown(std::uint64_t seed) {
    switch (seed * 2654435761u >> 7 & 3) {
        case 0: return std::make_unique<Plus>(seed);
        case 1: return std::make_unique<Times>(seed);
        case 2: return std::make_unique<Mixed>();
        default: return std::make_unique<Sum>(grown(seed * 3 + 1), grown(seed * 5 + 2));
    }
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? std::atol(argv[1]) : 100;
    std::vector<std::unique_ptr<Node>> nodes;
    for (std::uint64_t i = 0; i < 1000; i++) nodes.push_back(grown(i));
    std::map<std::string, std::uint64_t> found;
    std::uint64_t sum = 1;
    for (long round = 0; round < rounds; round++) {
        for (int again = 0; again < 15; again++)
            for (auto &node : nodes) sum = node->value(sum);
        for (int i = 0; i < 4000; i++) found[std::to_string((sum + i * 7919u) % 5003)] += i;
    }
    for (auto &[key, count] : found) sum = sum * 31 + count + key.size();
    std::printf("%llu %zu\n", static_cast<unsigned long long>(sum), found.size());
}
