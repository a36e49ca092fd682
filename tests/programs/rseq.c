/* Threads on one processor that add to a counter inside restartable sequences (rseq(2)).
 *
 * A sequence loads the counter, takes its time, and stores it plus one; the kernel promises that a thread
 * which is interrupted on the way starts again. If it did not, an addition of another thread would be
 * lost. Works until its standard input ends, then prints whether all additions are there; exits with 7. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/rseq.h>

#define THREADS 4

static atomic_bool stopping;
static volatile uint64_t counter;
static uint64_t additions[THREADS], restarts[THREADS];

/* True when the addition was made, false when it has to be tried again. */
static bool add_one(struct rseq *area) {
    bool restarted = false;
    asm volatile(
        ".pushsection __rseq_cs, \"aw\"\n"
        ".balign 32\n"
        "5: .long 0, 0\n"
        ".quad 1f, 2f - 1f, 4f\n"
        ".popsection\n"
        "lea 5b(%%rip), %%rax\n"
        "mov %%rax, %[current]\n"
        "1: mov %[counter], %%rcx\n"
        "mov $2000, %%eax\n"
        "3: dec %%eax\n"
        "jnz 3b\n"
        "inc %%rcx\n"
        "mov %%rcx, %[counter]\n"
        "2: jmp 6f\n"
        ".byte 0x0f, 0xb9, 0x3d\n" /* so that a disassembler takes the signature for an operand */
        ".long 0x53053053\n"
        "4: movb $1, %[restarted]\n"
        "6:\n"
        : [current] "=m"(area->rseq_cs), [counter] "+m"(counter), [restarted] "+m"(restarted)
        :
        : "rax", "rcx", "memory", "cc");
    return !restarted;
}

static void *work(void *argument) {
    int thread = (int)(uintptr_t)argument;
    struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    while (!stopping) {
        if (add_one(area))
            additions[thread]++;
        else
            restarts[thread]++;
    }
    return NULL;
}

int main(void) {
    if (__rseq_size == 0) {
        puts("no rseq here");
        return 0;
    }
    cpu_set_t one;
    sched_getaffinity(0, sizeof one, &one);
    int processor = 0;
    while (!CPU_ISSET(processor, &one)) processor++;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof one, &one);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], &attributes, work, (void *)(uintptr_t)i);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    stopping = true;
    uint64_t made = 0, again = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        made += additions[i];
        again += restarts[i];
    }
    if (counter != made) printf("%lld additions were lost\n", (long long)(made - counter));
    puts(counter == made && again > 0 ? "all additions are there" : "not as it should");
    return 7;
}
