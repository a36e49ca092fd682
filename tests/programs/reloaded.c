// Code of files that does not stay what it was: libraries that are unloaded, replaced, and changed in memory.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

typedef int (*function)(int);

__attribute__((noreturn, format(printf, 1, 2))) static void wrong(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    _exit(1);
}

static void *opened(const char *name, function *which) {
    void *library = dlopen(name, RTLD_NOW);
    if (!library)
        wrong("%s", dlerror());
    *which = (function)dlsym(library, "answer");
    return library;
}

// A library that is loaded and unloaded, again and again, and another one in between.
static void unloaded(const char *first, const char *second, int rounds) {
    for (int i = 0; i < rounds; i++) {
        function answer;
        void *library = opened(i % 2 ? second : first, &answer);
        int got = answer(i);
        if (got != (i % 2 ? i + 2000 : i + 1000))
            wrong("round %d: %d", i, got);
        dlclose(library);
    }
    puts("unloaded: well");
}

// The code of a library is changed in memory.
static void changed(const char *first) {
    function answer;
    opened(first, &answer);
    if (answer(1) != 1001)
        wrong("before: %d", answer(1));
    unsigned char *page = (unsigned char *)((unsigned long)answer & ~4095UL);
    if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC))
        wrong("mprotect");
    unsigned char *at = (unsigned char *)answer;
    // lea eax, [rdi + 1000]: the number is made another one.
    for (int i = 0; i < 64; i++) {
        if (at[i] == 0x8d && at[i + 1] == 0x87 && at[i + 2] == 0xe8 && at[i + 3] == 0x03) {
            at[i + 2] = 0xb8;
            at[i + 3] = 0x0b;
            if (answer(1) != 3001)
                wrong("after: %d", answer(1));
            puts("changed: well");
            return;
        }
    }
    wrong("there is nothing to change");
}

// Another library takes the place of one that is mapped, and its file's.
static void replaced(const char *first, const char *second, const char *place) {
    function answer;
    char command[4096];
    snprintf(command, sizeof command, "cp %s %s.new && mv %s.new %s", first, place, place, place);
    if (system(command))
        wrong("%s", command);
    void *library = opened(place, &answer);
    if (answer(5) != 1005)
        wrong("first: %d", answer(5));
    snprintf(command, sizeof command, "cp %s %s.new && mv %s.new %s", second, place, place, place);
    if (system(command))
        wrong("%s", command);
    if (answer(6) != 1006)
        wrong("what is mapped has changed: %d", answer(6));
    dlclose(library);
    opened(place, &answer);
    if (answer(7) != 2007)
        wrong("second: %d", answer(7));
    puts("replaced: well");
}

// Forked children have what their parent has, each for itself.
static void forked(const char *first, const char *second) {
    function answer;
    opened(first, &answer);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) {
            function other;
            opened(second, &other);
            _exit(answer(i) == 1000 + i && other(i) == 2000 + i ? 0 : 1);
        }
        int status;
        waitpid(child, &status, 0);
        if (status)
            wrong("child %d: %d", i, status);
    }
    puts("forked: well");
}

// A library's code is made writable, and is what it was, while a thread is in it.
static volatile int is_over;
static void (*spin)(volatile int *);

static void *spins(void *unused) {
    spin(&is_over);
    return unused;
}

static void entered(const char *first) {
    function answer;
    spin = (void (*)(volatile int *))dlsym(opened(first, &answer), "spin");
    unsigned char *page = (unsigned char *)((unsigned long)spin & ~4095UL);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        is_over = 0;
        if (pthread_create(&thread, NULL, spins, NULL))
            wrong("no thread");
        usleep(2000);
        if (mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) || answer(i) != 1000 + i)
            wrong("round %d", i);
        if (mprotect(page, 4096, PROT_READ | PROT_EXEC))
            wrong("back, round %d", i);
        usleep(1000);
        is_over = 1;
        pthread_join(thread, NULL);
    }
    puts("entered: well");
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 4)
        return 2;
    const char *first = words[2], *second = words[3];
    if (!strcmp(words[1], "unloaded"))
        unloaded(first, second, 200);
    else if (!strcmp(words[1], "changed"))
        changed(first);
    else if (!strcmp(words[1], "replaced"))
        replaced(first, second, words[4]);
    else if (!strcmp(words[1], "entered"))
        entered(first);
    else if (!strcmp(words[1], "forked"))
        forked(first, second);
    else
        return 2;
    return 0;
}
