/* Calls a function from places that it knows, once it is told to, or its input has ended. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

APART long look(long number) {
    __asm__ volatile("" ::"r"(number) : "memory");
    return number;
}

APART long down(long depth) {
    if (depth == 0) return look(depth) + 1;
    return down(depth - 1) + 1;
}

APART long aside(long depth) { return down(depth) + 2; }

/* A frame of variable size, far larger than a page. */
APART long wide(long size) {
    char *room = alloca(size);
    memset(room, 1, size);
    __asm__ volatile("" ::"r"(room) : "memory");
    return down(2) + room[size / 2];
}

/* A frame that the function aligns by itself. */
APART long aligned(long number) {
    char room[256] __attribute__((aligned(64)));
    __asm__ volatile("" ::"r"(room) : "memory");
    return down(number) + (room[0] != 0);
}

static void on_signal(int number) { look(number); }
static void on_alarm(int number) { down(number % 3); }
APART void interrupted(void) {
    raise(SIGUSR1);
    __asm__ volatile("");
}

static void *first(void *number) {
    for (int i = 0; i < 10; i++) down((long)number);
    return NULL;
}

static void *second(void *number) {
    for (int i = 0; i < 20; i++) aside((long)number);
    return NULL;
}

static ucontext_t back, coroutine;
static void in_coroutine(void) {
    for (int i = 0; i < 10; i++) {
        down(1);
        swapcontext(&coroutine, &back);
    }
}

APART void on_own_stack(size_t size) {
    char *volatile stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = size;
    coroutine.uc_link = &back;
    makecontext(&coroutine, in_coroutine, 0);
    for (volatile int n = 0; n < 10; n++) swapcontext(&back, &coroutine);
    munmap(stack, 1 << 16);
}

/* Calls a function with a frame pointer that is none. There is no unwind rule for it. */
long with_frame_pointer(long (*function)(long), long value);
__asm__(".text\n.globl with_frame_pointer\n.type with_frame_pointer, @function\n"
        "with_frame_pointer:\n push %rbp\n mov %rsi, %rbp\n mov $7, %edi\n sub $8, %rsp\n call *%rax\n"
        " add $8, %rsp\n pop %rbp\n ret\n.size with_frame_pointer, .-with_frame_pointer\n");

APART long confused(long value) {
    long result;
    /* rax is the function, as the assembly has it. */
    __asm__ volatile("sub $128, %%rsp\n call with_frame_pointer\n add $128, %%rsp"
                     : "=a"(result)
                     : "a"(look), "S"(value)
                     : "rdi", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc");
    return result;
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    long sum = 0;
    getchar();
    signal(SIGUSR1, on_signal);
    if (!strcmp(kind, "depths")) {
        for (long depth = 0; depth < 10; depth++)
            for (long i = 0; i <= depth; i++) sum += down(depth);
        for (long depth = 0; depth < 5; depth++) sum += aside(depth);
    } else if (!strcmp(kind, "deep")) {
        sum += down(121) + down(500);
    } else if (!strcmp(kind, "frames")) {
        for (long size = 16; size < 2000000; size = size * 3 / 16 * 16) sum += wide(size);
        for (long number = 0; number < 5; number++) sum += aligned(number);
    } else if (!strcmp(kind, "signals")) {
        for (int i = 0; i < 5; i++) interrupted();
        stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
        sigaltstack(&other, NULL);
        sigaction(SIGUSR1, &action, NULL);
        for (int i = 0; i < 5; i++) interrupted();
    } else if (!strcmp(kind, "interrupting")) {
        struct itimerval often = {{0, 300}, {0, 300}};
        signal(SIGALRM, on_alarm);
        setitimer(ITIMER_REAL, &often, NULL);
        for (long i = 0; i < 300000; i++) sum += down(3);
        signal(SIGALRM, SIG_IGN);
    } else if (!strcmp(kind, "threads")) {
        pthread_t threads[8];
        for (long i = 0; i < 8; i++)
            pthread_create(&threads[i], NULL, i % 2 ? second : first, (void *)(i / 2));
        for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    } else if (!strcmp(kind, "forks")) {
        down(1);
        for (int i = 0; i < 3; i++) {
            if (fork() == 0) _exit((int)aside(2) & 1);
            wait(NULL);
        }
    } else if (!strcmp(kind, "coroutines")) {
        for (int i = 0; i < 3; i++) on_own_stack(1 << 16);
    } else if (!strcmp(kind, "confused")) {
        char *hole = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(hole + 4096, 4096, PROT_NONE);
        long here = (long)&hole;
        long values[] = {0, 1, 8, -8, -16, 0x10, 0x7fffffffffff, here, here + 1, here + 8, here + 4096,
                         here + (1 << 20), here + (8 << 20), here & -4096, (here | 4095) + 1,
                         (long)hole, (long)hole + 4096 - 8, (long)hole + 4096 - 16,
                         (long)hole + 4096, (long)hole + 8192 - 8, (long)main, (long)&values, 1L << 62};
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) sum += confused(values[i]);
        for (long i = -300; i < 300; i++) sum += confused(here + 8 * i);
    }
    printf("%ld\n", sum);
    return 0;
}
