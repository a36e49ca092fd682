// Functions of the same name and of several languages' names; called a known number of times.
#include <cstdio>
#include <cstdlib>

#define APART __attribute__((noipa))
// Room for a jump, so that every function can be changed.
#define ROOM __asm__ volatile(".nops 16")

extern "C" APART int lone(int x) {
    ROOM;
    return x + 1;
}

// The C library has a global one, too.
extern "C" APART long labs(long x) {
    ROOM;
    return x < 0 ? -x : x;
}

namespace shop {
struct Till {
    APART int add(int x) {
        ROOM;
        return sum += x;
    }
    APART int add(char x) {
        ROOM;
        return sum += x - '0';
    }
    APART int close() {
        ROOM;
        return sum;
    }
    APART int &operator[](int) {
        ROOM;
        return sum;
    }
    int sum = 0;
};
}  // namespace shop

int main() {
    shop::Till till;
    int total = 0;
    for (int round = 0; round < 7; round++) total += lone(round) + till.add(round) + till.add('1');
    total += till.close() + till[0] + static_cast<int>(labs(-total));
    std::printf("%d\n", total);
    return total == 0;
}
