/* Calls that do not return, and what the program itself knows of them.
 *
 *   leaving HOW ROUNDS
 *
 * It prints "ready", waits for a line, does ROUNDS rounds of HOW, and prints one line of JSON:
 *
 *   entered    how often `timed` was entered
 *   returned   how often it returned
 *   inside     how often `counted` was called from within `timed`
 *   outside    how often it was called from elsewhere
 *   ns         how long `timed` took, by the program's own clock, up to where it was left
 *
 * Then it waits for another line, and does nothing meanwhile: what still runs then, runs on. */
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <pthread.h>
#include <ucontext.h>
#include <unistd.h>

#define APART __attribute__((noipa))

static long entered, returned, inside, outside, ns, began, is_inside;

static long now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void left() { ns += now() - began, is_inside = 0; }

extern "C" {
APART void counted() {
    (is_inside ? inside : outside)++;
    __asm__ volatile("" ::: "memory");
}

static jmp_buf there;
static sigjmp_buf there_too;
static void *unseen[5];
static int depth;

APART void spend() {
    for (long start = now(); now() - start < 200000;) {}
}

APART void jump_unseen() { __builtin_longjmp(unseen, 1); }

APART void throws(int how_deep) {
    if (how_deep) throws(how_deep - 1);
    else throw 7;
    __asm__ volatile("" ::: "memory");
}

/* Everything that is measured happens in here. `how` is what becomes of the call. */
APART void timed(char how) {
    if (!is_inside) entered++, is_inside = 1, began = now();
    spend();
    counted();
    switch (how) {
    case 'j': longjmp(there, 1);
    case 'b': jump_unseen(); break;
    case 's': raise(SIGUSR1); break;
    case 't': throws(depth); break;
    case 'x': left(), returned--, pthread_exit(nullptr);
    case 'c': pause(); break;
    case 'n': /* through several timed calls */
        if (depth-- > 0) timed('n');
        else throw 7;
        break;
    }
    returned++;
    left();
}
}

static void handler(int) { siglongjmp(there_too, 1); }

static void *in_thread(void *how) {
    timed(*static_cast<char *>(how));
    return nullptr;
}

static ucontext_t here, coroutine;
static char stack[256 << 10];

/* On a stack of its own, which it leaves and comes back to while it is timed. */
extern "C" APART void timed_coroutine() {
    entered++, began = now();
    spend();
    swapcontext(&coroutine, &here);
    spend();
    returned++;
    left();
}

static void on_its_stack() {
    timed_coroutine();
    swapcontext(&coroutine, &here);
}

/* Calls are left on this stack while one is in progress on the other. */
static void with_coroutine() {
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack, coroutine.uc_stack.ss_size = sizeof stack;
    makecontext(&coroutine, on_its_stack, 0);
    swapcontext(&here, &coroutine);
    try {
        throws(3);
    } catch (int) {
    }
    if (!setjmp(there)) longjmp(there, 1);
    swapcontext(&here, &coroutine);
}

static void round_of(char how) {
    pthread_t thread;
    char with = how;
    switch (how) {
    case 'r': timed('r'); break;
    case 'j':
        if (!setjmp(there)) timed('j');
        else left();
        break;
    case 'b': /* The compiler's own jump calls nothing. */
        if (!__builtin_setjmp(unseen)) timed('b');
        else left();
        break;
    case 's':
        if (!sigsetjmp(there_too, 1)) timed('s');
        else left();
        break;
    case 't':
    case 'n':
        depth = 3;
        try {
            timed(how);
        } catch (int) {
            left();
        }
        break;
    case 'k': with_coroutine(); break;
    case 'x':
    case 'c':
        pthread_create(&thread, nullptr, in_thread, &with);
        if (how == 'c') {
            while (!__atomic_load_n(&is_inside, __ATOMIC_ACQUIRE)) usleep(100);
            usleep(1000);
            pthread_cancel(thread);
        }
        pthread_join(thread, nullptr);
        if (how == 'c') left();
        else returned++;
        break;
    }
    counted();
}

int main(int argc, char **argv) {
    char line[16], how = argv[1][0];
    long rounds = argc > 2 ? atol(argv[2]) : 1;
    struct sigaction action = {};
    action.sa_handler = handler;
    sigaction(SIGUSR1, &action, nullptr);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    for (long i = 0; i < rounds; i++) {
        round_of(how);
        /* A call that returns, in between. */
        if (how != 'r' && how != 'k') round_of('r');
    }
    printf("{\"entered\": %ld, \"returned\": %ld, \"inside\": %ld, \"outside\": %ld, \"ns\": %ld}\n", entered, returned,
           inside, outside, ns);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    return 7;
}
