// Names whose demangling is worth a test.
#include <map>
#include <string>
#include <vector>

namespace zoo {

template <typename T, int N>
struct Cage {
    T animals[N];
    __attribute__((noinline)) T &operator[](int index) { return animals[index]; }
    __attribute__((noinline)) operator bool() const { return N > 0; }
};

struct Keeper {
    Keeper(const std::string &name);
    virtual ~Keeper();
    __attribute__((noinline)) int feed(std::map<std::string, std::vector<int>> const &food, int (*how)(int &&));
    std::string name;
};

Keeper::Keeper(const std::string &name) : name(name) {}
Keeper::~Keeper() {}
int Keeper::feed(std::map<std::string, std::vector<int>> const &food, int (*)(int &&)) {
    return static_cast<int>(food.size());
}

}  // namespace zoo

int main() {
    zoo::Cage<unsigned long, 4> cage{};
    zoo::Keeper keeper("k");
    auto local = [&](int x) __attribute__((noinline)) { return x + keeper.feed({}, nullptr); };
    return static_cast<int>(cage[1]) + static_cast<bool>(cage) + local(0) - 1;
}
