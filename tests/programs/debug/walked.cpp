// Templates, virtual functions, exceptions, lambdas and containers, for tests/gdb to walk through.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

volatile long scratch; // set
long total;            // watch

int twice(int number) { // call
    return number * 2;
}

template <typename T> T largest(const std::vector<T> &values) {
    T found = values.front();
    for (const T &value : values)
        if (found < value) found = value;
    return found;
}

template <typename T, int size> struct Ring {
    T items[size] = {};
    int at = 0;
    void put(T item) {
        items[at] = item;
        at = (at + 1) % size;
    }
    T sum() const {
        T found{};
        for (const T &item : items) found += item;
        return found;
    }
};

struct Unfit : std::runtime_error {
    int code;
    Unfit(const std::string &why, int code) : std::runtime_error(why), code(code) {}
};

class Animal {
  public:
    explicit Animal(std::string name) : name(std::move(name)) {}
    virtual ~Animal() = default;
    virtual int legs() const = 0;
    const std::string name;
};

class Bird final : public Animal {
  public:
    using Animal::Animal;
    int legs() const override { return 2; }
};

class Spider final : public Animal {
  public:
    using Animal::Animal;
    int legs() const override { return 8; }
};

// What is taken to pieces by a compiler has no references in it: GDB 13 ends when it is to show one.
struct Guard {
    long *counter;
    ~Guard() { ++*counter; }
};

static int check(int number) {
    Guard guard{&total};
    if (number % 3 == 0) throw Unfit("by three", number);
    if (number % 7 == 0) throw number;
    return number;
}

static int attempt(int number) {
    try {
        return check(number);
    } catch (const Unfit &unfit) {
        return -unfit.code;
    } catch (int raw) {
        return raw * 100;
    }
}

static int rethrown(int number) {
    try {
        try {
            return check(number * 3);
        } catch (...) {
            scratch++;
            throw;
        }
    } catch (const std::exception &error) {
        return static_cast<int>(std::string(error.what()).size());
    }
}

template <typename... Numbers> long sum_of(Numbers... numbers) { return (0L + ... + numbers); }

static void do_round(int round) {
    std::vector<std::unique_ptr<Animal>> animals;
    animals.push_back(std::make_unique<Bird>("robin"));
    animals.push_back(std::make_unique<Spider>("a spider with a name that is long"));
    int legs = 0;
    for (const auto &animal : animals) legs += animal->legs();
    std::map<std::string, int> counts;
    for (const char *word : {"one", "two", "one", "three"}) counts[word] += round;
    Ring<double, 4> ring;
    for (int i = 0; i < 6; i++) ring.put(i * 0.5);
    auto scaled = [factor = round % 5, legs](int number) { return number * factor + legs; };
    total += legs + counts["one"] + static_cast<long>(ring.sum()) + scaled(twice(3));
    total += largest<int>({3, round % 11, 5}) + static_cast<long>(largest<double>({0.5, 1.5}));
    total += attempt(round) + sum_of(round, 2L, 'c');
    if (round % 4 == 0) total += rethrown(round);
    scratch += round; // jump
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
    for (int round = 0; round < rounds; round++) {
        do_round(round);
    }
    std::printf("%ld\n", total);
}
