/* A program that finds the memory that it shares with weft, and writes to it what it likes.
 *
 *   PROGRAM name PID          asks weft to hold the threads of another process
 *   PROGRAM scribble MS SEED  writes into all that memory for a while, from children and a thread */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct piece {
    uint64_t *start, *end;
    char name[64];
};

static struct piece pieces[64];
static int count;

static void find(void) {
    char line[PATH_MAX + 128];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps) && count < 64) {
        unsigned long start, end;
        char rights[5], *name = strstr(line, "/memfd:weft");
        if (!name || sscanf(line, "%lx-%lx %4s", &start, &end, rights) != 3 || rights[1] != 'w') continue;
        pieces[count].start = (uint64_t *)start;
        pieces[count].end = (uint64_t *)end;
        sscanf(name, "/memfd:%63[^ \n]", pieces[count++].name);
    }
    if (maps) fclose(maps);
}

/* Asks for another process to be held. Where requests are is found by one of its own, for an execve that
 * fails: it is the first to change anything at the front. */
static int ask_for(int pid) {
    find();
    for (int i = 0; i < count; i++) {
        if (strcmp(pieces[i].name, "weft-clone")) continue;
        _Atomic uint32_t *first = (void *)pieces[i].start, *end = (void *)pieces[i].end;
        _Atomic uint32_t *doorbell = first;
        uint32_t before[32], self = (uint32_t)getpid();
        for (int word = 0; word < 32; word++) before[word] = first[word];
        char *nothing[] = {NULL};
        execve("/nonexistent", nothing, nothing);
        while (doorbell < first + 32 && *doorbell == before[doorbell - first]) doorbell++;
        if (doorbell == first + 32) return puts("the doorbell is elsewhere"), 1;
        for (_Atomic uint32_t *at = first; at + 3 < end; at++) {
            if (at[0] != 0 || at[1] != self || at[2] != self || at[3] != 0) continue;
            at[1] = at[2] = (uint32_t)pid;
            at[0] = 2; /* asked */
            ++*doorbell;
            syscall(SYS_futex, doorbell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
            while (at[0] == 2) usleep(1000);
            printf("%s\n", at[0] == 3 ? "held" : at[0] == 5 ? "refused" : "something else");
            fflush(stdout);
            getchar();
            at[0] = 0;
            return 0;
        }
    }
    return puts("no request was found"), 1;
}

static uint64_t seed;

static uint64_t next(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static uint64_t value(void) {
    static const uint64_t known[] = {0, 1, 2, 3, 5, 6, 7, 0x7fffffff, 0xffffffff, UINT64_MAX, 1ULL << 63, 4096};
    switch (next() % 4) {
    case 0: return known[next() % (sizeof known / sizeof *known)];
    case 1: return next() % 70000;
    case 2: return next() % 4194304 | (next() % 4194304) << 32;
    default: return next();
    }
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* Mostly where something is: at the front of each piece, and of the stripes of a recording. */
static void scribble(uint64_t until) {
    while (now() < until) {
        struct piece *piece = &pieces[next() % (uint64_t)count];
        uint64_t length = (uint64_t)(piece->end - piece->start), at = next() % length;
        uint64_t near = next() % 3;
        if (near == 0) at %= 256;
        if (near == 1) at = (at & ~((1ULL << 21) - 1)) % length + at % 64;
        if (at < length) piece->start[at] = value();
    }
}

static void *scribbler(void *until) {
    scribble(*(uint64_t *)until);
    return NULL;
}

static volatile uint64_t sum;
static void work(void) {
    for (int i = 0; i < 1000; i++) sum += (uint64_t)i * sum ^ (uint64_t)i;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "name")) return ask_for(atoi(argv[2]));
    if (argc != 4) return 2;
    uint64_t until = now() + strtoull(argv[2], NULL, 10);
    seed = strtoull(argv[3], NULL, 10) * 0x9e3779b97f4a7c15 | 1;
    find();
    if (!count) return puts("nothing of weft is here"), 0;
    for (int child = 0; child < 4; child++) {
        seed += (uint64_t)child << 32;
        if (!fork()) {
            scribble(until);
            _exit(0);
        }
    }
    pthread_t thread;
    pthread_create(&thread, NULL, scribbler, &until);
    while (now() < until) {
        work();
        if (!fork()) {
            execl("/bin/true", "true", NULL);
            _exit(0);
        }
        waitpid(-1, NULL, WNOHANG);
    }
    puts("ended");
    fflush(stdout);
    _exit(0);
}
