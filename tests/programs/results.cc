#include "results.h"
#include <cstdio>
#include <string>

#define GIVES extern "C" FUNCTION

struct Owner {
    int *owned;
    explicit Owner(int *what) : owned(what) {}
    ~Owner() { owned = nullptr; }
};
struct Handle { long number; };
struct Shape {
    double area() const;
    int corners() const;
};
FUNCTION double Shape::area() const { return seed; }
FUNCTION int Shape::corners() const { return seed; }

GIVES int &gives_reference() { return place; }
GIVES Handle gives_handle() { return Handle{seed}; }
GIVES bool gives_bool() { return seed == 3; }
GIVES Owner gives_owner() { return Owner(&place); }
GIVES std::string gives_string() { return std::string(seed, 'x'); }
GIVES double gives_double() { return seed; }
GIVES int (Shape::*gives_member())() const { return &Shape::corners; }

int main() {
    char line[16];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        Shape shape;
        int others = (int)(shape.area() + gives_double()) + (int)gives_string().size() + (gives_owner().owned == &place) +
                     (shape.*gives_member())();
        printf("%d %d %d %d %d\n", &gives_reference() == &place, (int)gives_handle().number, gives_bool(), shape.corners(),
               others);
        fflush(stdout);
    }
    return 0;
}
