/* Threads that live for a few calls; see lockstep.h. */
#include <stdint.h>

#define FUNCTIONS(X) X(born) X(lives) X(gives_birth)
#include "lockstep.h"

APART uint64_t lives(uint64_t x) {
    COUNT(lives);
    return x + 1;
}
APART void *born(void *value) {
    COUNT(born);
    uint64_t *x = (uint64_t *)value;
    for (int i = 0; i < 10; i++) *x = lives(*x);
    hand_over();
    return value;
}
APART void gives_birth(void) {
    COUNT(gives_birth);
    pthread_t children[3];
    uint64_t values[3] = {0, 100, 200};
    for (int i = 0; i < 3; i++) check(pthread_create(&children[i], NULL, born, &values[i]) == 0, "no thread");
    for (int i = 0; i < 3; i++) check(pthread_join(children[i], NULL) == 0, "a thread was lost");
    for (uint64_t i = 0; i < 3; i++) check(values[i] == 100 * i + 10, "a thread did not live");
}

static void one_round(unsigned long number) {
    (void)number;
    gives_birth();
}

int main(int argc, char **argv) { return lockstep_main(argc, argv); }
