// A program that loads a plugin, has threads call it, and unloads it. Arguments: the plugin, and another one.
//
// Commands on standard input: "load\n", "unload\n", "other\n" (loads the other one and unloads it), "call N\n", "cycle N M\n" (N
// times: loads the plugin, calls it M times, unloads it), "churn\n" (a thread loads and unloads it until "rest\n"), "exit\n".
// Each is answered by how often the plugin says that it was called, in all, and where it is.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 3

atomic_long plugged_calls, other_calls;
static const char *path, *other;
static void *plugin;
static void (*f)(long);
static atomic_int churning;

static void load(void) {
    plugin = dlopen(path, RTLD_NOW);
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    f = (void (*)(long))dlsym(plugin, "f");
}

static void unload(void) {
    dlclose(plugin);
    plugin = NULL;
}

static void *call(void *times) {
    for (long n = 0; n < (long)times; n++) f(n);
    return NULL;
}

static void call_all(long times) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, call, (void *)(times / THREADS));
    call((void *)(times % THREADS));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void *churn(void *unused) {
    while (churning) dlclose(dlopen(path, RTLD_NOW));
    return unused;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    path = words[1], other = words[2];
    pthread_t churner;
    char line[64];
    long first, second;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "load\n")) load();
        if (!strcmp(line, "unload\n")) unload();
        if (!strcmp(line, "other\n")) {
            void *it = dlopen(other, RTLD_NOW);
            void (*g)(long) = (void (*)(long))dlsym(it, "g");
            for (long n = 0; n < 1000; n++) g(n);
            dlclose(it);
        }
        if (sscanf(line, "call %ld", &first) == 1) call_all(first);
        if (sscanf(line, "cycle %ld %ld", &first, &second) == 2)
            for (long n = 0; n < first; n++) load(), call_all(second), unload();
        if (!strcmp(line, "churn\n")) {
            churning = 1;
            pthread_create(&churner, NULL, churn, NULL);
        }
        if (!strcmp(line, "rest\n")) {
            churning = 0;
            pthread_join(churner, NULL);
        }
        if (!strcmp(line, "exit\n")) return 3;
        printf("%ld %p\n", plugged_calls, plugin ? (void *)f : NULL);
        fflush(stdout);
    }
    return 0;
}
