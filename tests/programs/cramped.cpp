// Functions that end right behind a call, with nothing but the next function behind them, when they
// are compiled without alignment (-O1): their entries have room for a jump, their exits have not.
//
// Commands on standard input: "N\n" runs N rounds and prints how often each function was entered and
// left by a return, as "name calls exits", then "done". "block\n" has a thread enter `blocked` and wait
// there; "unblock\n" lets it go and waits for its end.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <unistd.h>

#define FUNCTION extern "C" __attribute__((noinline))

enum { LEAF, TWICE, LAST, CHOOSE, RECURSE, SUM, PASS, THROW, CATCH, BLOCKED, CALLS_BACK, FUNCTIONS };
static const char *const NAMES[FUNCTIONS] = {"leaf",  "twice",       "last",   "choose",  "recurse",   "sum",
                                             "pass",  "throw_some",  "catch_all", "blocked", "calls_back"};
static __thread long calls[FUNCTIONS], exits[FUNCTIONS];
static volatile long sink;
static volatile long interruptions;

FUNCTION void leaf(long n) { sink = sink + n; }
FUNCTION long twice(long n) {
    leaf(n);
    leaf(n + 1);
    return n;
}
FUNCTION void last(long n) {
    sink = n;
    leaf(n);
}
FUNCTION long choose(long n) {
    switch (n % 7) {
    case 0: leaf(1); return 1;
    case 1: twice(2); return 2;
    case 2: last(3); break;
    case 3: return n;
    case 4: leaf(n); leaf(2); break;
    case 5: return twice(7);
    default: break;
    }
    return n + 1;
}
FUNCTION long recurse(long n) {
    if (n == 0) return 0;
    long below = recurse(n - 1);
    leaf(below);
    return below + 1;
}
FUNCTION long sum(long n) {
    long all = 0;
    for (long i = 0; i < n; i++) {
        all += twice(i);
        if (all > 1000) leaf(all);
    }
    return all;
}
FUNCTION void calls_back(void (*back)(long), long n) { back(n); }
FUNCTION long throw_some(long n) {
    leaf(n);
    if (n % 3 == 0) throw n;
    return n;
}
FUNCTION long pass(long n) {
    long got = throw_some(n);
    leaf(got);
    return got;
}
FUNCTION long catch_all(long n) {
    try {
        return pass(n);
    } catch (long thrown) {
        leaf(thrown);
        return -thrown;
    }
}
FUNCTION long blocked(int fd) {
    char byte;
    long got = read(fd, &byte, 1);
    leaf(got);
    return got;
}

static void on_signal(int) { interruptions = interruptions + 1; }

static void count(int function, long called, long left) {
    calls[function] += called;
    exits[function] += left;
}

// What the functions do, told from their arguments alone.
static void count_twice() { count(TWICE, 1, 1), count(LEAF, 2, 2); }
static void count_choose(long n) {
    count(CHOOSE, 1, 1);
    switch (n % 7) {
    case 0: count(LEAF, 1, 1); break;
    case 1: count_twice(); break;
    case 2: count(LAST, 1, 1), count(LEAF, 1, 1); break;
    case 4: count(LEAF, 2, 2); break;
    case 5: count_twice(); break;
    }
}

static void round_of(long n) {
    twice(n), count_twice();
    last(n), count(LAST, 1, 1), count(LEAF, 1, 1);
    choose(n), count_choose(n);
    recurse(n % 5), count(RECURSE, n % 5 + 1, n % 5 + 1), count(LEAF, n % 5, n % 5);
    long all = 0, more = 0, steps = n % 60;
    for (long i = 0; i < steps; i++) all += i, more += all > 1000;
    if (sum(steps) != all) abort();
    count(SUM, 1, 1), count(TWICE, steps, steps), count(LEAF, 2 * steps + more, 2 * steps + more);
    calls_back(leaf, n), count(CALLS_BACK, 1, 1), count(LEAF, 1, 1);
    if (catch_all(n) != (n % 3 == 0 ? -n : n)) abort();
    count(CATCH, 1, 1), count(PASS, 1, n % 3 != 0), count(THROW, 1, n % 3 != 0), count(LEAF, 2, 2);
}

static int pipes[2];
static pthread_t waiting;
static void *wait_inside(void *) { return blocked(pipes[0]) == 1 ? nullptr : &pipes; }

int main() {
    char line[64];
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, nullptr);
    if (pipe(pipes)) return 2;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "block\n")) {
            if (pthread_create(&waiting, nullptr, wait_inside, nullptr)) return 2;
        } else if (!strcmp(line, "unblock\n")) {
            void *wrong = nullptr;
            if (write(pipes[1], "x", 1) != 1 || pthread_join(waiting, &wrong) || wrong) return 2;
        } else {
            long rounds = atol(line);
            for (long n = 0; n < rounds; n++) round_of(n);
            for (int f = 0; f < FUNCTIONS; f++) printf("%s %ld %ld\n", NAMES[f], calls[f], exits[f]);
        }
        puts("done");
        fflush(stdout);
    }
    printf("sum %ld\n", (long)sink);
    return 0;
}
