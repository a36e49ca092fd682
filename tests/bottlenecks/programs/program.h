// What all C and C++ programs here share: they count their operations where others can read it.
#pragma once
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static uint64_t *operations;

static inline void count_in(const char *path) {
    int file = open(path, O_RDWR);
    if (file < 0) {
        perror(path);
        exit(1);
    }
    operations = (uint64_t *)mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
}

static inline void count(uint64_t more) { __atomic_fetch_add(operations, more, __ATOMIC_RELAXED); }

static inline void nap_us(long us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

// Whatever the machine's settings are: a huge page is one fault where these programs mean 512.
static inline void use_small_pages(void) { prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }
