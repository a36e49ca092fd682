/* The library that sends and receives messages. Nothing is sent: it is about who calls. */
#include "pvm.h"

/* What is returned depends on both, so that nothing can be left out. */
__attribute__((noipa)) int pvm_send(int tid, int tag) { return tid * 31 + tag; }

__attribute__((noipa)) int pvm_recv(int tid, int tag) { return tid * 37 + tag; }
