/* Two levels of inlining, an alias, a weak name, an IFUNC and a static function. */
#include <stdio.h>
#include <stdlib.h>

volatile int sink;

static inline __attribute__((always_inline)) void innermost(int x) {
    sink = x * 3;
}

static inline __attribute__((always_inline)) void middle(int x) {
    innermost(x + 1);
    sink += x;
}

__attribute__((noinline)) int outer(int x) {
    middle(x);
    return sink;
}

int outer_alias(int x) __attribute__((alias("outer")));
int __outer_weak(int x) __attribute__((weak, alias("outer")));

static __attribute__((noinline)) int quiet(int x) {
    return x + sink;
}

static int plain(int x) {
    return x;
}

static int (*choose(void))(int) {
    return plain;
}

int chosen(int x) __attribute__((ifunc("choose")));

__attribute__((visibility("hidden"))) int secret(int x) {
    return x ^ sink;
}

int main(int argc, char **argv) {
    char *memory = malloc(argc);
    printf("%d %p\n", outer(argc) + outer_alias(argc) + quiet(argc) + chosen(argc) + secret(argc), memory);
    free(memory);
    return argv == NULL;
}
