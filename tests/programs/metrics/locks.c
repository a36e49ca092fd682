/* Locks that are waited for and held for known times. Each worker has a lock, and a partner which
 * holds it for a while whenever the worker comes for it. See truth.h. */
#define VALUES(X)                                                                                          \
    X(wait_ns) X(hold_ns) X(contended) X(perhaps_contended) X(worker_wait_ns) X(worker_hold_ns)            \
        X(worker_contended) X(worker_perhaps_contended)
#include "truth.h"

/* A wait counts as contention from one length on; below the other a clock around it may be wrong. */
#define LONG 10000
#define VERY_LONG 100000
#define HOLD 2000000L

typedef struct {
    pthread_mutex_t lock, inner;
    pthread_rwlock_t readers;
    pthread_cond_t changed;
    int ask[2], answer[2], ready;
    struct {
        long wait_ns, hold_ns, contended, perhaps_contended;
    } side[2]; /* the worker's and the partner's */
} Pair;

enum { WORKER, PARTNER };

static void say(int pipe) { check(write(pipe, "", 1) == 1, "the partner is not there"); }
static void hear(int pipe) {
    char byte;
    check(read(pipe, &byte, 1) == 1, "the partner is not there");
}

/* Nothing else may happen between the two times than getting the lock. */
#define TIMED(pair, which, lock)                                                                           \
    ({                                                                                                     \
        long began_ = now();                                                                               \
        check(!(lock), "a lock");                                                                          \
        long got_ = now();                                                                                 \
        (pair)->side[which].wait_ns += got_ - began_;                                                      \
        (pair)->side[which].contended += got_ - began_ > VERY_LONG;                                        \
        (pair)->side[which].perhaps_contended += got_ - began_ > LONG;                                     \
        got_;                                                                                              \
    })

static void *partner(void *argument) {
    Pair *pair = (Pair *)argument;
    for (;;) {
        char what;
        check(read(pair->ask[0], &what, 1) == 1, "the worker is not there");
        if (what == 'e') return NULL;
        if (what == 'r') {
            TIMED(pair, PARTNER, pthread_rwlock_wrlock(&pair->readers));
            say(pair->answer[1]);
            nap(HOLD);
            check(!pthread_rwlock_unlock(&pair->readers), "unlocking");
            continue;
        }
        long got = TIMED(pair, PARTNER, pthread_mutex_lock(&pair->lock));
        if (what == 'm') say(pair->answer[1]);
        nap(HOLD);
        if (what == 'c') {
            pair->ready = 1;
            check(!pthread_cond_signal(&pair->changed), "signalling");
        }
        long end = now();
        check(!pthread_mutex_unlock(&pair->lock), "unlocking");
        pair->side[PARTNER].hold_ns += end - got;
    }
}

static void ask(Pair *pair, char what) {
    check(write(pair->ask[1], &what, 1) == 1, "the partner is not there");
}

static void hold(Pair *pair, long ns) { pair->side[WORKER].hold_ns += ns; }

/* Wait for a mutex, and hold it with another one inside. */
static void mutexes(Pair *pair) {
    ask(pair, 'm');
    hear(pair->answer[0]);
    long got = TIMED(pair, WORKER, pthread_mutex_lock(&pair->lock));
    nap(HOLD / 4);
    TIMED(pair, WORKER, pthread_mutex_lock(&pair->inner));
    check(pthread_mutex_trylock(&pair->inner) != 0, "locked twice");
    nap(HOLD / 4);
    check(!pthread_mutex_unlock(&pair->inner), "unlocking");
    nap(HOLD / 4);
    long end = now();
    check(!pthread_mutex_unlock(&pair->lock), "unlocking");
    hold(pair, end - got);
}

/* Get one without waiting. */
static void tries(Pair *pair) {
    check(!pthread_mutex_trylock(&pair->lock), "it is free");
    long got = now();
    nap(HOLD / 4);
    long end = now();
    check(!pthread_mutex_unlock(&pair->lock), "unlocking");
    hold(pair, end - got);
}

static void readers(Pair *pair) {
    ask(pair, 'r');
    hear(pair->answer[0]);
    TIMED(pair, WORKER, pthread_rwlock_rdlock(&pair->readers));
    check(!pthread_rwlock_unlock(&pair->readers), "unlocking");
}

/* Wait for a condition, which is not to hold the mutex. */
static void conditions(Pair *pair) {
    long got = TIMED(pair, WORKER, pthread_mutex_lock(&pair->lock));
    ask(pair, 'c');
    nap(HOLD / 4);
    while (!pair->ready) {
        hold(pair, now() - got);
        check(!pthread_cond_wait(&pair->changed, &pair->lock), "a condition");
        got = now();
    }
    pair->ready = 0;
    nap(HOLD / 4);
    long end = now();
    check(!pthread_mutex_unlock(&pair->lock), "unlocking");
    hold(pair, end - got);
}

APART void locks(Pair *pair, long amount) {
    for (long i = 0; i < amount; i++) {
        mutexes(pair);
        tries(pair);
        readers(pair);
        conditions(pair);
    }
}

static void work(long amount) {
    Pair pair = {.lock = PTHREAD_MUTEX_INITIALIZER,
                 .inner = PTHREAD_MUTEX_INITIALIZER,
                 .readers = PTHREAD_RWLOCK_INITIALIZER,
                 .changed = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    check(!pipe(pair.ask) && !pipe(pair.answer), "pipes");
    check(!pthread_create(&thread, NULL, partner, &pair), "no thread");
    /* That takes a lock of the loader's, for which others who create a thread may have to wait. */
    ADD(perhaps_contended, 1);
    locks(&pair, amount);
    ask(&pair, 'e');
    check(!pthread_join(thread, NULL), "no end");
    for (int i = 0; i < 2; i++) close(pair.ask[i]), close(pair.answer[i]);
    for (int i = 0; i < 2; i++) {
        ADD(wait_ns, pair.side[i].wait_ns);
        ADD(hold_ns, pair.side[i].hold_ns);
        ADD(contended, pair.side[i].contended);
        ADD(perhaps_contended, pair.side[i].perhaps_contended);
    }
    ADD(worker_wait_ns, pair.side[WORKER].wait_ns);
    ADD(worker_hold_ns, pair.side[WORKER].hold_ns);
    ADD(worker_contended, pair.side[WORKER].contended);
    ADD(worker_perhaps_contended, pair.side[WORKER].perhaps_contended);
}

int main(int argc, char **argv) { return truth_main(argc, argv); }
