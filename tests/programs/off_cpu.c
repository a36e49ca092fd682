/* Threads that do not always run, and know for how long they have run and waited.

   Says "ready" and then does what it is told by lines: each is answered by a line of JSON. Between two of them, all threads
   sleep. "compute MS": every worker uses so much processor time. "sleeps  MS": every worker sleeps that long, and computes for a
   tenth of it. "start": there is one worker more. "stop": the last worker ends. "brief N MS": so many threads come and go, one
   after the other, each of which sleeps that long. "leave": the first thread ends.

   usage: off_cpu WORKERS [pinned] */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64 };

typedef struct {
    pthread_t thread;
    sem_t begin, done;
    long tid, born, woken, wall, cpu, waited;
} Worker;

static Worker workers[MOST];
static int count;
static char command[80];

static long at(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* How long the thread has waited for a processor, as the kernel counts it. */
static long counted(void) {
    char path[80];
    long ran, waited;
    snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", (long)syscall(SYS_gettid));
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%ld %ld", &ran, &waited) != 2) abort();
    fclose(file);
    return waited;
}

static void spin(long ns) {
    long end = at(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (at(CLOCK_THREAD_CPUTIME_ID) < end)
        for (volatile int i = 0; i < 10000; i++) {}
}

static void *work(void *argument) {
    Worker *own = argument;
    char name[16];
    own->born = at(CLOCK_BOOTTIME);
    own->tid = syscall(SYS_gettid);
    snprintf(name, sizeof name, "worker-%d", (int)(own - workers));
    pthread_setname_np(pthread_self(), name);
    sem_post(&own->done);
    for (;;) {
        while (sem_wait(&own->begin)) {}
        if (!strncmp(command, "stop", 4)) return NULL;
        long cpu = at(CLOCK_THREAD_CPUTIME_ID), waited = counted();
        long ms = atol(command + 8);
        if (!strncmp(command, "compute", 7)) spin(ms * 1000000);
        if (!strncmp(command, "sleeps ", 7)) {
            usleep(ms * 1000);
            spin(ms * 100000);
        }
        own->waited = counted() - waited;
        own->cpu = at(CLOCK_THREAD_CPUTIME_ID) - cpu;
        own->wall = at(CLOCK_MONOTONIC) - own->woken;
        sem_post(&own->done);
    }
}

static void start(void) {
    Worker *one = &workers[count++];
    sem_init(&one->begin, 0, 0);
    sem_init(&one->done, 0, 0);
    pthread_create(&one->thread, NULL, work, one);
    while (sem_wait(&one->done)) {}
}

static void *brief(void *ms) {
    usleep((long)ms * 1000);
    return NULL;
}

static void answer(void) {
    printf("[");
    for (int i = 0; i < count; i++) {
        Worker *one = &workers[i];
        printf("%s{\"tid\": %ld, \"born\": %ld, \"wall\": %ld, \"cpu\": %ld, \"waited\": %ld}", i ? ", " : "", one->tid,
               one->born, one->wall, one->cpu, one->waited);
    }
    puts("]");
    fflush(stdout);
}

static void *listen(void *unused) {
    while (fgets(command, sizeof command, stdin)) {
        int threads;
        long ms;
        if (sscanf(command, "brief %d %ld", &threads, &ms) == 2)
            for (int i = 0; i < threads; i++) {
                pthread_t thread;
                pthread_create(&thread, NULL, brief, (void *)ms);
                pthread_join(thread, NULL);
            }
        else if (!strncmp(command, "start", 5))
            start();
        else if (!strncmp(command, "stop", 4)) {
            count--;
            sem_post(&workers[count].begin);
            pthread_join(workers[count].thread, NULL);
        } else if (strncmp(command, "leave", 5)) {
            for (int i = 0; i < count; i++) {
                /* From now on it could run. */
                workers[i].woken = at(CLOCK_MONOTONIC);
                sem_post(&workers[i].begin);
            }
            for (int i = 0; i < count; i++)
                while (sem_wait(&workers[i].done)) {}
        }
        answer();
        if (!strncmp(command, "leave", 5) && getpid() == syscall(SYS_gettid)) {
            pthread_t thread;
            pthread_create(&thread, NULL, listen, NULL);
            pthread_exit(NULL);
        }
    }
    exit(0);
    return unused;
}

int main(int argc, char **argv) {
    if (argc > 2) {
        cpu_set_t all, one;
        if (sched_getaffinity(0, sizeof all, &all)) return 1;
        int cpu = 0;
        while (!CPU_ISSET(cpu, &all)) cpu++;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one)) return 1;
    }
    for (int i = 0; i < atoi(argv[1]); i++) start();
    puts("ready");
    fflush(stdout);
    listen(NULL);
}
