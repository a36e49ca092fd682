/* Messages, as the paper on MDL has them: see pvm.c. */
#ifndef PVM_H
#define PVM_H
int pvm_send(int tid, int tag);
int pvm_recv(int tid, int tag);

void exchanges(int depth);
void gathers(int peers);
void scatters(int peers);
void relays(int depth);

/* What the program counts itself; by tag are numbers from 0 to TAGS - 1. */
#define TAGS 4
enum { EXCHANGES, GATHERS, SCATTERS, RELAYS, PROCEDURES };
extern __thread int pvm_inside[PROCEDURES], pvm_in_solve, pvm_in_spread;
void counts(int is_send, int tag);

#define IN(procedure) pvm_inside[procedure]++
#define OUT(procedure) pvm_inside[procedure]--
#endif
