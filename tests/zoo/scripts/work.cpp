// Templates, containers, algorithms, exceptions, virtual calls and threads.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
};
struct Square : Shape {
    double side;
    explicit Square(double s) : side(s) {}
    double area() const override { return side * side; }
};
struct Circle : Shape {
    double radius;
    explicit Circle(double r) : radius(r) {}
    double area() const override { return 3.14159 * radius * radius; }
};

template <int N> struct Fib { static constexpr std::uint64_t value = Fib<N - 1>::value + Fib<N - 2>::value; };
template <> struct Fib<0> { static constexpr std::uint64_t value = 0; };
template <> struct Fib<1> { static constexpr std::uint64_t value = 1; };

int thrown(int depth) {
    struct Guard { int &n; ~Guard() { n++; } };
    static int cleaned;
    Guard guard{cleaned};
    if (depth == 0) throw std::runtime_error("deep");
    return thrown(depth - 1) + cleaned;
}

int main() {
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 100000; i++) {
        if (i % 3) shapes.push_back(std::make_unique<Square>(i % 10));
        else shapes.push_back(std::make_unique<Circle>(i % 7));
    }
    double sum = 0;
    for (auto &shape : shapes) sum += shape->area();
    std::cout << "areas " << sum << "\n" << Fib<80>::value << "\n";
    std::map<std::string, int> ordered;
    std::unordered_map<int, std::string> hashed;
    for (int i = 0; i < 20000; i++) {
        ordered[std::to_string(i * 7919 % 5003)] += i;
        hashed[i * 31 % 4001] += "x";
    }
    std::cout << ordered.size() << " " << ordered.begin()->second << " " << hashed[77].size() << "\n";
    int caught = 0;
    for (int i = 0; i < 200; i++) {
        try { thrown(i % 20); } catch (const std::exception &error) { caught += error.what()[0]; }
    }
    std::cout << "caught " << caught << "\n";
    std::vector<std::uint64_t> parts(4);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&parts, t] { for (std::uint64_t i = 0; i < 500000; i++) parts[t] = parts[t] * 31 + i; });
    for (auto &thread : threads) thread.join();
    std::cout << std::accumulate(parts.begin(), parts.end(), std::uint64_t{0}) << "\n";
    std::regex pattern("([a-z]+)([0-9]+)");
    std::string text = "ab12 cd34 ef56";
    std::cout << std::regex_replace(text, pattern, "$2$1") << "\n";
    std::variant<int, std::string> either = "text";
    std::function<int(int)> twice = [](int x) { return 2 * x; };
    std::ostringstream out;
    out << std::get<std::string>(either) << twice(21);
    std::cout << out.str() << std::endl;
}
