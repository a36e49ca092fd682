/* A program under limits and policies that it sets for itself, and that checks itself.
 *
 *     limited [LIMIT=VALUE]...
 *
 * A line with a number on standard input has it call work() that often and print "worked TOTAL", its own
 * count. The end of standard input ends it: it checks once more that it can do what it could do when it was
 * ready, and prints "well". Whatever is not as it should be is printed as "harmed: ..." and ends it by SIGABRT.
 *
 * Limits are relative to what the program has when it is ready: as=5M leaves it 5 MB of address space.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long total;
static atomic_int over, begun;
static sigset_t mask_at_start;

__attribute__((noreturn, format(printf, 1, 2))) static void harmed(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("harmed: ", stdout);
    vprintf(format, arguments);
    putchar('\n');
    fflush(stdout);
    abort();
}

__attribute__((noinline)) unsigned long work(unsigned long n) {
    total = total + 1;
    return n * 2654435761u ^ total;
}

/* What a thread computes again and again must be the same each time. */
static void check_arithmetic(void) {
    double sum = 0;
    unsigned long mixed = 1;
    for (int i = 1; i < 2000; i++) {
        sum += 1.0 / i;
        mixed = mixed * 6364136223846793005u + (unsigned long)i;
    }
    static _Atomic unsigned long expected;
    unsigned long none = 0;
    unsigned long bits;
    memcpy(&bits, &sum, sizeof bits);
    bits ^= mixed;
    if (!atomic_compare_exchange_strong(&expected, &none, bits) && none != bits)
        harmed("a computation gave %lx instead of %lx", bits, none);
}

static void check_mask(void) {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int number = 1; number < 32; number++)
        if (sigismember(&now, number) != sigismember(&mask_at_start, number))
            harmed("signal %d is %sblocked", number, sigismember(&now, number) ? "" : "not ");
}

static void *check_often(void *unused) {
    begun++;
    while (!over) {
        check_arithmetic();
        check_mask();
        struct timespec rest = {.tv_nsec = 2000000};
        if (nanosleep(&rest, NULL) != 0) harmed("nanosleep: %s", strerror(errno));
    }
    return unused;
}

static void *compute(void *unused) {
    begun++;
    while (!over) {
        for (int i = 0; i < 50; i++) check_arithmetic();
        usleep(1000);
    }
    return unused;
}

static void *wait_for_end(void *pipe_end) {
    char byte;
    begun++;
    if (read(*(int *)pipe_end, &byte, 1) != 0) harmed("read: %s", strerror(errno));
    return NULL;
}

static unsigned long from_status(const char *name) {
    FILE *file = fopen("/proc/self/status", "r");
    if (!file) harmed("no /proc: %s", strerror(errno));
    char line[256];
    unsigned long kilobytes = 0;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) kilobytes = strtoul(line + strlen(name) + 1, NULL, 10);
    fclose(file);
    return kilobytes << 10;
}

static unsigned long bytes_of(const char *text) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end == 'K') value <<= 10;
    if (*end == 'M') value <<= 20;
    if (*end == 'G') value <<= 30;
    return value;
}

static void set(int limit, unsigned long value) {
    struct rlimit wanted = {value, value};
    if (setrlimit(limit, &wanted)) harmed("setrlimit: %s", strerror(errno));
}

/* Maps single pages that the kernel cannot merge until it maps no more, and gives `spare` back. */
static void fill_maps(unsigned long spare) {
    enum { MOST = 1 << 20 };
    static void *pages[MOST];
    unsigned long count = 0;
    while (count < MOST) {
        int protection = count % 2 ? PROT_READ : PROT_NONE;
        void *page = mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (page == MAP_FAILED) break;
        pages[count++] = page;
    }
    /* The last ones are at one end, so that each that goes is one mapping less. */
    for (unsigned long i = 0; i < spare && count; i++) munmap(pages[--count], 4096);
}

static void fill_descriptors(unsigned long spare) {
    int last = -1, found;
    while ((found = dup(0)) >= 0) last = found;
    for (unsigned long i = 0; i < spare; i++) close(last--);
}

/* Allows every system call but one, which kills the process or fails. */
static void forbid(unsigned number, unsigned answer) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) harmed("no_new_privs: %s", strerror(errno));
    /* For all threads. */
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter))
        harmed("seccomp: %s", strerror(errno));
}

static void be_user(unsigned long id) {
    if (setresgid(id, id, id) || setresuid(id, id, id)) harmed("setresuid: %s", strerror(errno));
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static unsigned long headroom;

static void limit(const char *name, const char *value) {
    unsigned long number = bytes_of(value);
    if (!strcmp(name, "as")) {
        headroom = number;
        set(RLIMIT_AS, from_status("VmSize") + number);
    } else if (!strcmp(name, "data")) {
        set(RLIMIT_DATA, from_status("VmData") + number);
    } else if (!strcmp(name, "fsize")) {
        set(RLIMIT_FSIZE, number);
    } else if (!strcmp(name, "memlock")) {
        set(RLIMIT_MEMLOCK, number);
    } else if (!strcmp(name, "stack")) {
        set(RLIMIT_STACK, number);
    } else if (!strcmp(name, "cpu")) {
        set(RLIMIT_CPU, number);
    } else if (!strcmp(name, "core")) {
        set(RLIMIT_CORE, number);
    } else if (!strcmp(name, "nproc")) {
        set(RLIMIT_NPROC, number);
    } else if (!strcmp(name, "nofile")) {
        set(RLIMIT_NOFILE, 64);
        fill_descriptors(number);
    } else if (!strcmp(name, "maps")) {
        fill_maps(number);
    } else if (!strcmp(name, "kill")) {
        forbid((unsigned)number, SECCOMP_RET_KILL_PROCESS);
    } else if (!strcmp(name, "fail")) {
        forbid((unsigned)number, SECCOMP_RET_ERRNO | EPERM);
    } else if (!strcmp(name, "root")) {
        if (chroot(value) || chdir("/")) harmed("chroot: %s", strerror(errno));
    } else if (strcmp(name, "user")) {
        harmed("no limit is called %s", name);
    }
}

int main(int count, char **arguments) {
    char line[64];
    pthread_t threads[3];
    int ends[2];
    setvbuf(stdout, NULL, _IOLBF, 4096);
    pthread_sigmask(SIG_SETMASK, NULL, &mask_at_start);
    /* A change of the user interrupts all other threads. */
    for (int i = 1; i < count; i++)
        if (!strncmp(arguments[i], "user=", 5)) be_user(bytes_of(arguments[i] + 5));
    if (pipe(ends)) harmed("pipe: %s", strerror(errno));
    pthread_create(&threads[0], NULL, check_often, NULL);
    pthread_create(&threads[1], NULL, compute, NULL);
    pthread_create(&threads[2], NULL, wait_for_end, &ends[0]);
    /* Threads have all signals blocked until they have their turn for the first time. */
    while (begun < 3) usleep(100);
    /* The stream's buffer, before memory is short. */
    if (!fgets(line, sizeof line, stdin)) return 0;
    for (int i = 1; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        if (!value) harmed("%s has no value", arguments[i]);
        *value = 0;
        limit(arguments[i], value + 1);
    }
    puts("ready");

    unsigned long done = 0;
    while (fgets(line, sizeof line, stdin)) {
        unsigned long times = strtoul(line, NULL, 10);
        for (unsigned long i = 0; i < times; i++) work(i);
        done += times;
        if (total != done) harmed("work was done %lu times instead of %lu", total, done);
        printf("worked %lu\n", total);
    }
    if (ferror(stdin)) harmed("reading failed: %s", strerror(errno));
    over = 1;
    close(ends[1]);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    check_mask();
    if (headroom) {
        void *all = mmap(NULL, headroom / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED) harmed("the address space that was left is gone: %s", strerror(errno));
    }
    puts("well");
    return 0;
}
