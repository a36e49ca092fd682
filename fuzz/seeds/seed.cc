// Names to demangle, and code that throws.
#include <stdexcept>
#include <vector>

namespace zoo {
template <typename T> struct Cage {
    std::vector<T> animals;
    void add(const T &animal) { animals.push_back(animal); }
    T &operator[](std::size_t index) { return animals.at(index); }
};
}  // namespace zoo

int main(int argc, char **) {
    zoo::Cage<int> cage;
    cage.add(argc);
    try {
        return cage[1];
    } catch (const std::out_of_range &) {
        return 0;
    }
}
