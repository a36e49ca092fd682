/* Loads two libraries in turn, each where the other was, which both call what is measured; a line of input lets it go on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define apart __attribute__((noipa))

apart void look(void) { __asm__ volatile(""); }

static void *use(const char *own, const char *end) {
    char path[4096], line[16];
    snprintf(path, sizeof path, "%s%s", own, end);
    void *library = dlopen(path, RTLD_NOW);
    if (!library) abort();
    void (*run)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, "run");
    printf("loaded\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(1);
    for (int time = 0; time < 10; time++) run(look);
    printf("%p\n", (void *)run);
    fflush(stdout);
    char *more = fgets(line, sizeof line, stdin);
    dlclose(library);
    return more ? run : NULL;
}

int main(int count, char **words) {
    (void)count;
    if (use(words[0], ".first.so")) use(words[0], ".second.so");
    return 0;
}
