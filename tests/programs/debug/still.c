// Preloaded into a program whose name is in STILL: its clock stands, its process id is always the
// same, and what it reads as random are zeros.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int is_still;
enum { NOW = 1700000000 };

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("STILL");
    is_still = name && !strcmp(name, program_invocation_short_name);
}

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

int clock_gettime(clockid_t clock, struct timespec *into) {
    if (!is_still) return REAL(clock_gettime)(clock, into);
    *into = (struct timespec){NOW, 0};
    return 0;
}

int gettimeofday(struct timeval *restrict into, void *restrict zone) {
    if (!is_still) return REAL(gettimeofday)(into, zone);
    *into = (struct timeval){NOW, 0};
    return 0;
}

time_t time(time_t *into) {
    if (!is_still) return REAL(time)(into);
    if (into) *into = NOW;
    return NOW;
}

pid_t getpid(void) {
    return is_still ? 1000 : REAL(getpid)();
}

static const char *quiet(const char *path) {
    int is_random = !strcmp(path, "/dev/urandom") || !strcmp(path, "/dev/random");
    return is_still && is_random ? "/dev/zero" : path;
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    return REAL(fopen)(quiet(path), mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return fopen(path, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return REAL(open)(quiet(path), flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));
