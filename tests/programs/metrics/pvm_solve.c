/* Procedures that exchange messages: the first of two modules. See pvm_main.c. */
#include "pvm.h"

/* Sends before and receives after it has called itself. */
__attribute__((noipa)) void exchanges(int depth) {
    IN(EXCHANGES), pvm_in_solve++;
    counts(1, 0);
    pvm_send(depth, 0);
    if (depth) exchanges(depth - 1);
    counts(0, 1);
    pvm_recv(depth, 1);
    OUT(EXCHANGES), pvm_in_solve--;
}

__attribute__((noipa)) void gathers(int peers) {
    IN(GATHERS), pvm_in_solve++;
    for (int i = 0; i < peers; i++) {
        counts(0, i % TAGS);
        pvm_recv(i, i % TAGS);
    }
    scatters(2);
    OUT(GATHERS), pvm_in_solve--;
}
