// Exceptions: code that only the unwinder enters.
#include <stdexcept>
#include <string>
#include <vector>

volatile int sink;

struct guard {
    int value;
    explicit guard(int value) : value(value) { sink = value; }
    ~guard() { sink = -value; }
};

__attribute__((noinline)) int thrower(int x) {
    guard g(x);
    if (x == 3) throw std::runtime_error("three");
    if (x == 4) throw 4;
    return x * 2;
}

int catcher(int x) {
    int total = 0;
    for (int i = 0; i < x; i++) {
        try {
            guard g(i);
            total += thrower(i);
        } catch (const std::runtime_error &e) {
            total += (int)std::string(e.what()).size();
        } catch (int v) {
            switch (v + total) {
            case 4: total = 5; break;
            case 5: total = sink; break;
            case 6: total ^= 3; break;
            case 7: throw;
            case 8: total -= sink; break;
            case 9: return total;
            }
        }
    }
    return total;
}

struct shape {
    virtual ~shape() = default;
    virtual int area(int) const = 0;
};
struct square : shape {
    int area(int x) const override { return x * x; }
};
struct twice : shape {
    std::vector<shape *> all;
    int area(int x) const override {
        int total = 0;
        for (auto *each : all) total += each->area(x);
        return total;
    }
};

int last_virtual(const shape &s, int x) { return s.area(x + sink); }

int main(int argc, char **) {
    twice t;
    square s;
    t.all.push_back(&s);
    return catcher(argc) + last_virtual(t, argc);
}
