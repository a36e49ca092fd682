/* A program whose threads send and receive messages, and count them: in all, by the procedures and the
 * source files that are on the stack, and by tag. See truth.h. */
#define VALUES(X)                                                                                          \
    X(all) X(sent) X(received) X(exchanges_msgs) X(gathers_msgs) X(scatters_msgs) X(relays_msgs)           \
        X(solve_msgs) X(spread_msgs) X(tag_0) X(tag_1) X(tag_2) X(tag_3) X(gathers_tag_2) X(solve_tag_2)   \
            X(gathers_and_spread_msgs)
#include "truth.h"

#include "pvm.h"

__thread int pvm_inside[PROCEDURES], pvm_in_solve, pvm_in_spread;

void counts(int is_send, int tag) {
    ADD(all, 1);
    ADD(sent, is_send);
    ADD(received, !is_send);
    for (int i = 0; i < PROCEDURES; i++) truth_mine[exchanges_msgs_number + i] += pvm_inside[i] > 0;
    ADD(solve_msgs, pvm_in_solve > 0);
    ADD(spread_msgs, pvm_in_spread > 0);
    truth_mine[tag_0_number + tag]++;
    ADD(gathers_tag_2, tag == 2 && pvm_inside[GATHERS] > 0);
    ADD(solve_tag_2, tag == 2 && pvm_in_solve > 0);
    ADD(gathers_and_spread_msgs, pvm_inside[GATHERS] > 0 && pvm_in_spread > 0);
}

static void work(long amount) {
    for (long i = 0; i < amount; i++) {
        exchanges(3);
        gathers(5);
        scatters(3);
        relays(4);
        counts(1, 3);
        pvm_send(0, 3);
    }
}

int main(int argc, char **argv) { return truth_main(argc, argv); }
