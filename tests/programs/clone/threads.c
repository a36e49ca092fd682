/* Threads that come and go in all ways that Linux has. */
#define _GNU_SOURCE
#include "check.h"
#include <linux/futex.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static atomic_long total;
static _Thread_local long own = 5;
static _Thread_local long zeroed;

static void *adds(void *value) {
    CHECK(own == 5 && zeroed == 0);
    own = (long)value;
    zeroed = own * 2;
    sched_yield();
    CHECK(own == (long)value && zeroed == own * 2);
    total += own;
    return (void *)(own + 1);
}

CASE(joined) {
    long count = or_else(amount, 500);
    for (long i = 0; i < count; i++) {
        pthread_t thread;
        void *result;
        CHECK(pthread_create(&thread, NULL, adds, (void *)i) == 0);
        CHECK(pthread_join(thread, &result) == 0 && result == (void *)(i + 1));
    }
    SAME(total, count * (count - 1) / 2);
}
CASE(joined_together) {
    long count = or_else(amount, 500);
    for (long done = 0; done < count; done += 50) {
        pthread_t threads[50];
        for (long i = 0; i < 50; i++) CHECK(pthread_create(threads + i, NULL, adds, (void *)i) == 0);
        for (long i = 0; i < 50; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    }
    SAME(total, (count + 49) / 50 * 1225);
}
/* The memory of threads that are gone is given back. */
static long mapped(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;
    CHECK(file && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    return pages * 4;
}
/* AMOUNT: by how many kilobytes more may be mapped. */
CASE(memory_returned) {
    long before = 0;
    for (int round = 0; round < 12; round++) {
        pthread_t threads[20];
        for (long i = 0; i < 20; i++) CHECK(pthread_create(threads + i, NULL, adds, (void *)i) == 0);
        for (long i = 0; i < 20; i++) pthread_join(threads[i], NULL);
        if (round == 3) before = mapped();
    }
    CHECK(mapped() < before + (amount ? amount : 8192)); /* kilobytes; 160 threads have come and gone */
}

static void *counts_for_ever(void *stop) {
    unsigned long n = 0;
    /* At least once: on a busy machine it may be told to stop before it has had its turn. */
    do n += mapped() != 0;
    while (!*(atomic_int *)stop);
    return (void *)n;
}
CASE(ends_while_others_run) {
    atomic_int stop = 0;
    pthread_t busy[3];
    for (int i = 0; i < 3; i++) pthread_create(&busy[i], NULL, counts_for_ever, &stop);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 65536);
    for (long i = 0; i < 300; i++) {
        pthread_t thread;
        while (pthread_create(&thread, &attributes, adds, (void *)i) == EAGAIN) sched_yield();
    }
    while (total < 299 * 300 / 2) sched_yield();
    stop = 1;
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(busy[i], &result);
        CHECK(result != NULL);
    }
}

static atomic_int cleaned;
static void clean(void *unused) {
    (void)unused;
    cleaned++;
}
static void *waits_for_ever(void *how) {
    pthread_cleanup_push(clean, NULL);
    if (how) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    total++;
    if (how)
        for (;;) asm volatile("pause");
    for (;;) pause();
    pthread_cleanup_pop(0);
}
CASE(cancelled) {
    for (long i = 0; i < 40; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, waits_for_ever, (void *)(i % 2));
        while (total <= i) sched_yield();
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
    printf("%d\n", cleaned);
}

static pthread_key_t key;
static void destroy(void *value) { total += (long)value; }
static void *has_keys(void *value) {
    pthread_setspecific(key, value);
    pthread_exit(NULL);
}
CASE(keys) {
    pthread_key_create(&key, destroy);
    for (long i = 1; i <= 100; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, has_keys, (void *)i);
        pthread_join(thread, NULL);
    }
    printf("%ld\n", total);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;
static long passes;
static void *plays(void *side) {
    for (int i = 0; i < 2000; i++) {
        pthread_mutex_lock(&lock);
        while (turn != (int)(long)side) pthread_cond_wait(&changed, &lock);
        turn = !turn;
        passes++;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}
CASE(ping_pong) {
    pthread_t two[2];
    for (long i = 0; i < 2; i++) pthread_create(&two[i], NULL, plays, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(two[i], NULL);
    printf("%ld\n", passes);
}

/* Instructions that must stay one: counted in all ways by four at a time. */
static long plain, locked, exchanged, compared;
static _Alignas(16) struct {
    uint64_t low, high;
} wide;
static void *counts(void *unused) {
    for (int i = 0; i < 20000; i++) {
        asm volatile("lock incq %0" : "+m"(locked) : : "cc");
        __atomic_fetch_add(&exchanged, 1, __ATOMIC_SEQ_CST);
        long old = compared;
        while (!__atomic_compare_exchange_n(&compared, &old, old + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
        uint64_t low = 0, high = 0;
        asm volatile("1: lea 1(%%rax), %%rbx\n lea 2(%%rdx), %%rcx\n lock cmpxchg16b %0\n jne 1b"
                     : "+m"(wide), "+a"(low), "+d"(high) : : "rbx", "rcx", "cc", "memory");
        pthread_mutex_lock(&lock);
        plain++;
        pthread_mutex_unlock(&lock);
    }
    return unused;
}
CASE(atomic) {
    pthread_t four[4];
    for (int i = 0; i < 4; i++) pthread_create(&four[i], NULL, counts, NULL);
    for (int i = 0; i < 4; i++) pthread_join(four[i], NULL);
    printf("%ld %ld %ld %ld %lu %lu\n", plain, locked, exchanged, compared, wide.low, wide.high);
}

static void *goes_on(void *main_thread) {
    CHECK(pthread_join(*(pthread_t *)main_thread, NULL) == 0);
    puts("the first thread is gone");
    /* The files of a process in /proc are those of its first thread: they say nothing now. */
    printf("%ld\n", mapped());
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, adds, (void *)9) == 0 && pthread_join(thread, NULL) == 0);
    exit(5);
}
CASE(main_ends_first) {
    static pthread_t first;
    first = pthread_self();
    pthread_t thread;
    pthread_create(&thread, NULL, goes_on, &first);
    pthread_exit(NULL);
}
static void *ends_all(void *code) {
    puts("the end of all");
    _exit((int)(long)code);
}
CASE(exit_group) {
    pthread_t busy[4], thread;
    static atomic_int stop;
    for (int i = 0; i < 4; i++) pthread_create(&busy[i], NULL, counts_for_ever, &stop);
    pthread_create(&thread, NULL, ends_all, (void *)42);
    for (;;) pause();
}
/* A fault in one thread is the end of all. */
static void *faults(void *nowhere) {
    *(volatile int *)nowhere = 1;
    return NULL;
}
CASE(fault_in_a_thread) {
    puts("before");
    pthread_t thread;
    pthread_create(&thread, NULL, faults, NULL);
    for (;;) pause();
}

/* --- clone by hand --- */

static char stacks[4][65536] __attribute__((aligned(64)));
static volatile long shared;
static int shares(void *value) {
    shared = (long)value;
    return 17;
}
static int child_of(int flags, void *value) {
    int pid = clone(shares, stacks[0] + sizeof stacks[0], flags, value, NULL, NULL, NULL);
    CHECK(pid > 0);
    int status;
    CHECK(waitpid(pid, &status, __WALL) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 17);
    return pid;
}
CASE(odd_flags) {
    for (long i = 1; i <= 50; i++) {
        child_of(CLONE_VM | SIGCHLD, (void *)i);
        SAME(shared, i);
        child_of(SIGCHLD, (void *)(i + 1000)); /* memory of its own */
        SAME(shared, i);
        child_of(CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)(i + 2000));
        SAME(shared, i + 2000);
        child_of(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | SIGCHLD, (void *)(i + 3000));
        SAME(shared, i + 3000);
        child_of(CLONE_VM, (void *)(i + 4000)); /* no signal at its end */
        SAME(shared, i + 4000);
    }
    struct sigaction old;
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
}

/* A thread without the library: its own thread block and a word that is cleared at its end. */
static uint64_t block[64];
static int bare_thread(void *value) {
    uint64_t first;
    asm volatile("mov %%fs:0, %0" : "=r"(first));
    shared = (long)first + (long)value;
    syscall(SYS_exit, 0);
    return 0;
}
CASE(bare_threads) {
    for (long i = 0; i < 200; i++) {
        static int parent_tid, child_tid;
        block[0] = (uint64_t)i * 10;
        block[5] = 0x1234567800; /* where the library has its canary */
        child_tid = -1;
        int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                    CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
        CHECK(clone(bare_thread, stacks[1] + sizeof stacks[1], flags, (void *)7, &parent_tid, block, &child_tid) > 0);
        for (int seen; (seen = *(volatile int *)&child_tid) != 0;)
            syscall(SYS_futex, &child_tid, FUTEX_WAIT, seen, NULL, NULL, 0);
        SAME(shared, i * 10 + 7);
    }
}

/* The newest call, with nothing but registers to go by in the child. */
CASE(clone3) {
    for (int i = 0; i < 100; i++) {
        struct clone_args arguments = {.flags = CLONE_VM | CLONE_VFORK,
                                       .exit_signal = SIGCHLD,
                                       .stack = (uint64_t)stacks[2],
                                       .stack_size = sizeof stacks[2]};
        long pid, kept = 0x1234567;
        shared = 0;
        asm volatile("mov %4, %%r12\n"
                     "syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 1f\n"
                     "call 2f\n"
                     "mov $21, %%edi\n"
                     "mov $60, %%eax\n"
                     "syscall\n"
                     "2: mov %%r12, %1\n"
                     "ret\n"
                     "1:"
                     : "=a"(pid), "+m"(shared)
                     : "a"(SYS_clone3), "D"(&arguments), "r"(kept), "S"(sizeof arguments)
                     : "rcx", "r11", "r12", "cc", "memory");
        CHECK(pid > 0);
        int status;
        CHECK(waitpid((pid_t)pid, &status, 0) == pid && WEXITSTATUS(status) == 21);
        SAME(shared, kept);
    }
    /* As a fork: no stack of its own. */
    for (int i = 0; i < 50; i++) {
        struct clone_args arguments = {.exit_signal = SIGCHLD};
        long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
        if (pid == 0) _exit(22);
        int status;
        CHECK(pid > 0 && waitpid((pid_t)pid, &status, 0) == pid && WEXITSTATUS(status) == 22);
    }
    CHECK(syscall(SYS_clone3, NULL, 64) == -1 && errno == EFAULT);
}
/* More code than there is room for, in many threads at once. */
enum { FUNCTIONS = 4000, DISTANCE = 64 };
static void *calls_all(void *made) {
    long sum = 0;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < FUNCTIONS; i++) sum += ((int (*)(void))((char *)made + i * DISTANCE))();
    return (void *)sum;
}
CASE(much_code) {
    unsigned char *made = mmap(NULL, FUNCTIONS * DISTANCE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(made != MAP_FAILED);
    for (int i = 0; i < FUNCTIONS; i++) {
        unsigned char *one = made + i * DISTANCE;
        one[0] = 0xb8; /* mov eax, i; ret */
        memcpy(one + 1, &i, 4);
        one[5] = 0xc3;
    }
    CHECK(mprotect(made, FUNCTIONS * DISTANCE, PROT_READ | PROT_EXEC) == 0);
    pthread_t threads[12];
    for (int i = 0; i < 12; i++) CHECK(pthread_create(&threads[i], NULL, calls_all, made) == 0);
    for (int i = 0; i < 12; i++) {
        void *sum;
        CHECK(pthread_join(threads[i], &sum) == 0);
        SAME(sum, 3L * FUNCTIONS * (FUNCTIONS - 1) / 2);
    }
    puts("all");
}
