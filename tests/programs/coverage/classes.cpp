// Templates, objects that end, exceptions, ranges, a lambda.
#include <cstdio>
#include <string>
#include <vector>
#include <stdexcept>
#include <map>
template <typename T> T biggest(const std::vector<T> &all) {
    T most = all[0];
    for (const T &one : all)
        if (one > most)
            most = one;
    return most;
}
struct Guard {
    int &n;
    Guard(int &n) : n(n) { n++; }
    ~Guard() {
        n--;
    }
};
static int depth = 0;
static int tricky(int x) {
    Guard g(depth);
    if (x % 3 == 0)
        throw std::runtime_error("three");
    if (x % 5 == 0 &&
        x % 2 == 0)
        return -1;
    return x > 10 ? x * 2
                  : x + 1;
}
void quiet(int x) {
    if (x > 3) return;
    printf("%d", x);
}
int main() {
    std::vector<int> v{3, 1, 4, 1, 5, 9, 2, 6};
    std::vector<double> d{3, 1, 4};
    int total = 0;
    for (int i = 0; i < 20; i++) {
        try {
            total += tricky(i);
        } catch (const std::exception &e) {
            total -= 1;
        }
    }
    std::map<std::string, int> counts;
    for (auto &w : {"a", "b", "a"}) counts[w]++;
    auto twice = [&](int x) { return 2 * x; };
    total += twice(4);
    do {
        total--;
        if (total == 17) continue;
        if (total < 10) break;
    } while (total > 0);
    quiet(1); quiet(8);
    printf("%d %d %f %zu\n", total, biggest(v), biggest(d), counts.size());
}
