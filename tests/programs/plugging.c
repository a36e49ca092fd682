/* Loads and unloads a library; see lockstep.h.
 *
 *   load     loads the library, to stay: "loaded"
 *   unload   unloads it: "unloaded"
 *
 * In every round the library is loaded once more, called and let go, so that it really comes and goes unless
 * it was told to stay. The library stands beside the program, with ".so" after its name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

#define FUNCTIONS(X) X(plugged) X(plugged_leaf) X(calls_plugin)
static int obeyed(const char *line);
#define COMMANDS(line) obeyed(line)
#include "lockstep.h"

static char path[4096];
static void *kept;

static int obeyed(const char *line) {
    if (strcmp(line, "load\n") == 0) {
        check((kept = dlopen(path, RTLD_NOW | RTLD_LOCAL)) != NULL, "no library to keep");
        puts("loaded");
    } else if (strcmp(line, "unload\n") == 0) {
        check(dlclose(kept) == 0, "a library that was kept did not go");
        puts("unloaded");
    } else {
        return 0;
    }
    fflush(stdout);
    return 1;
}

APART uint64_t calls_plugin(void *library, uint64_t x) {
    COUNT(calls_plugin);
    uint64_t (*function)(unsigned long *, uint64_t);
    *(void **)&function = dlsym(library, "plugged");
    check(function != NULL, "the library is empty");
    return function(&counts[plugged_number], x);
}

static void one_round(unsigned long number) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    check(library != NULL, "no library");
    for (uint64_t i = 0; i < 3; i++) check(calls_plugin(library, number + i) == (number + i) * 5 + 1, "plugged");
    check(dlclose(library) == 0, "a library did not go");
}

int main(int argc, char **argv) {
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 4);
    check(size > 0, "no path");
    strcpy(path + size, ".so");
    return lockstep_main(argc, argv);
}
