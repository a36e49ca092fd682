/* Looks at its own stack from inside of probed functions, in three ways; see lockstep.h.
 *
 *   trace    prints the frames that backtrace() and _Unwind_Backtrace() see, as function+offset, and
 *            __builtin_return_address(0), in one line of JSON
 *   halt     calls down to a function that waits for a line of input, for a debugger to look: "halted"
 *
 * What these two commands call is not counted, as it is the first thread that calls it.
 * While it works, stop_here() is called from inside of it all; a debugger can break there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <stdint.h>
#include <unwind.h>

#define FUNCTIONS(X) X(outer) X(middle) X(inner) X(looks) X(stop_here) X(tail_frame)
static int obeyed(const char *line);
#define COMMANDS(line) obeyed(line)
#include "lockstep.h"

enum { WORK, LOOK, HALT };

/* The name comes from the dynamic symbols; beyond the program itself offsets are the library's business. */
static void print_frame(void *address, const char *before) {
    Dl_info info, own;
    if (!dladdr(address, &info) || !dladdr((void *)&print_frame, &own)) printf("%s\"?\"", before);
    else if (info.dli_fbase == own.dli_fbase && info.dli_sname)
        printf("%s\"%s+%#lx\"", before, info.dli_sname, (unsigned long)((char *)address - (char *)info.dli_saddr));
    else
        printf("%s\"%s\"", before, strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname);
}

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *first) {
    print_frame((void *)_Unwind_GetIP(context), *(int *)first ? "" : ", ");
    *(int *)first = 0;
    return _URC_NO_REASON;
}

APART uint64_t stop_here(uint64_t x) {
    COUNT(stop_here);
    return x + 1;
}

APART uint64_t looks(uint64_t x, int what) {
    COUNT(looks);
    if (what == LOOK) {
        void *frames[64];
        int first = 1, number = backtrace(frames, 64);
        printf("{\"backtrace\": [");
        for (int i = 0; i < number; i++) print_frame(frames[i], i ? ", " : "");
        printf("], \"unwind\": [");
        _Unwind_Backtrace(step, &first);
        printf("], \"return\": [");
        print_frame(__builtin_return_address(0), "");
        puts("]}");
        fflush(stdout);
    } else if (what == HALT) {
        char byte;
        puts("halted");
        fflush(stdout);
        check(read(0, &byte, 1) == 1, "nobody let it go on");
    }
    return stop_here(x);
}
/* Has no frame of its own when it looks: it ends in a jump. */
APART uint64_t tail_frame(uint64_t x, int what) {
    COUNT(tail_frame);
    return looks(x + 1, what);
}
APART uint64_t inner(uint64_t x, int what) {
    COUNT(inner);
    volatile uint64_t space[5] = {x};
    return tail_frame(x, what) + space[0];
}
APART uint64_t middle(uint64_t x, int what) {
    COUNT(middle);
    /* A frame whose size only it knows. */
    volatile char *space = __builtin_alloca(16 + x % 64);
    space[0] = (char)x;
    return inner(x, what) + (uint64_t)(space[0] == (char)x);
}
APART uint64_t outer(uint64_t x, int what) {
    COUNT(outer);
    uint64_t below = middle(x, what);
    __asm__ volatile("" : "+r"(below));
    return below;
}

static int obeyed(const char *line) {
    int what = strcmp(line, "trace\n") == 0 ? LOOK : strcmp(line, "halt\n") == 0 ? HALT : WORK;
    if (what == WORK) return 0;
    outer(7, what);
    return 1;
}

static void one_round(unsigned long number) { check(outer(number, WORK) == 2 * number + 3, "outer"); }

int main(int argc, char **argv) {
    /* Its lines of input come one by one, so that what waits for one finds it. */
    setvbuf(stdin, NULL, _IONBF, 0);
    return lockstep_main(argc, argv);
}
