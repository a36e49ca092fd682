/* Small, but with everything that weft reads: inlined functions, an IFUNC, aliases, a PLT. */
#include <stdlib.h>
#include <string.h>

static inline __attribute__((always_inline)) int inner(int x) { return x * 3 + (x >> 1); }
static inline __attribute__((always_inline)) int middle(int x) { return inner(x) + inner(x + 1); }
__attribute__((noinline)) int outer(int x) { return middle(x) - 1; }
int other_name(int) __attribute__((alias("outer")));
static int fast(int x) { return x + 1; }
static int (*choose(void))(int) { return fast; }
int chosen(int) __attribute__((ifunc("choose")));
int main(int argc, char **argv) {
    char *copy = strdup(argv[0]);
    int result = outer(argc) + other_name(argc) + chosen(argc);
    free(copy);
    return result & 1;
}
