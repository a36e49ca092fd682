/* Procedures that pass messages on: the second of two modules. See pvm_main.c. */
#include "pvm.h"

__attribute__((noipa)) void scatters(int peers) {
    IN(SCATTERS), pvm_in_spread++;
    for (int i = 0; i < peers; i++) {
        counts(1, 2);
        pvm_send(i, 2);
    }
    OUT(SCATTERS), pvm_in_spread--;
}

/* Calls into the other module, and from there comes back. */
__attribute__((noipa)) void relays(int depth) {
    IN(RELAYS), pvm_in_spread++;
    if (depth) {
        gathers(depth);
        relays(depth - 1);
    }
    counts(1, 3);
    pvm_send(depth, 3);
    OUT(RELAYS), pvm_in_spread--;
}
