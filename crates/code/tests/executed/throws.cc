// Exceptions through frames that clean up, with and without handlers, for the tracer.
#include <cstdio>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <vector>

struct guard {
    int &count;
    ~guard() { count++; }
};

struct base {
    virtual ~base() = default;
    virtual int value(int) const = 0;
};
struct one : base {
    int value(int x) const override { return x + 1; }
};
struct two : base {
    int value(int x) const override {
        if (x > 4) throw std::out_of_range("two");
        return x * 2;
    }
};

__attribute__((noinline)) static int fall(int depth, int &cleaned) {
    guard g{cleaned};
    std::string name(static_cast<size_t>(depth) * 5, 'x');
    switch (depth % 6) {
    case 0: throw std::runtime_error(name);
    case 1: return fall(depth - 1, cleaned) + 1;
    case 2:
        try {
            return fall(depth - 1, cleaned);
        } catch (const std::logic_error &) {
            return -1;
        }
    case 3:
        try {
            return fall(depth - 1, cleaned);
        } catch (const std::runtime_error &) {
            throw;
        }
    case 4:
        try {
            return fall(depth - 1, cleaned);
        } catch (...) {
            throw depth;
        }
    }
    return fall(depth - 1, cleaned) * 2;
}

int main(int count, char **) {
    int cleaned = 0, caught = 0;
    for (int i = 0; i < 8; i++) {
        try {
            fall(i, cleaned);
        } catch (int depth) {
            caught += depth;
        } catch (const std::exception &e) {
            caught += static_cast<int>(std::string(e.what()).size());
        }
    }
    std::vector<std::unique_ptr<base>> all;
    all.push_back(std::make_unique<one>());
    all.push_back(std::make_unique<two>());
    std::map<std::string, int> totals;
    for (int x = 0; x < 8; x++) {
        for (auto &each : all) {
            try {
                totals[typeid(*each).name()] += each->value(x + count - 1);
            } catch (const std::out_of_range &) {
                totals["out"]++;
            }
        }
    }
    try {
        std::vector<int>().at(3);
    } catch (std::exception &e) {
        totals[e.what()]++;
    }
    try {
        dynamic_cast<two &>(*all[0]).value(1);
    } catch (std::bad_cast &) {
        totals["cast"]++;
    }
    std::ostringstream text;
    for (auto &each : totals) text << each.first << '=' << each.second << ' ' << 1.5;
    std::printf("%d %d %s\n", cleaned, caught, text.str().c_str());
}
