// Control flow of all kinds that compilers make something special of.
#include <stdio.h>
#include <stdlib.h>

extern volatile int sink;
volatile int sink;

typedef int (*handler)(int);

int dense(int x) {
    switch (x) {
    case 0: return sink + 3;
    case 1: return sink * 5;
    case 2: sink++; return 7;
    case 3: return sink - 11;
    case 4: sink = 9; return 13;
    case 5: return sink / 3;
    case 6: return sink ^ 17;
    default: return -1;
    }
}

int biased(long x) {
    switch (x) {
    case 100: sink = 1; break;
    case 101: sink = 2; break;
    case 103: sink = 3; break;
    case 104: sink = 4; break;
    case 105: sink = 5; break;
    case 109: sink += 6; break;
    case 110: sink = 7; break;
    default: sink = 8;
    }
    return sink;
}

int negative(int x) {
    switch (x) {
    case -3: sink = 1; break;
    case -2: sink = 2; break;
    case -1: sink = 3; break;
    case 0: sink = 4; break;
    case 1: sink += 5; break;
    case 2: sink = 6; break;
    }
    return sink;
}

int bytes(unsigned char x) {
    switch (x) {
    case 'a': return sink + 1;
    case 'b': sink = 5; return 2;
    case 'c': return sink * 3;
    case 'd': return sink - 4;
    case 'e': sink--; return 5;
    case 'f': return sink ^ 6;
    }
    return 0;
}

int masked(unsigned x) {
    switch (x & 7) {
    case 0: return sink;
    case 1: return sink * 3;
    case 2: sink = 2; return 4;
    case 3: return sink - 3;
    case 4: return sink << 3;
    case 5: sink++; return 5;
    case 6: return sink | 0x40;
    case 7: return sink & 0x77;
    }
    return 0;
}

int unlimited(unsigned x) {
    switch (x) {
    case 0: return sink;
    case 1: return sink * 3;
    case 2: sink = 2; return 4;
    case 3: return sink - 3;
    case 4: return sink << 3;
    default: __builtin_unreachable();
    }
}

int sparse(unsigned x) {
    switch (x) {
    case 3: return sink + 1;
    case 1000: return sink + 2;
    case 70000: return sink + 3;
    case 70001: return sink * 4;
    case 70002: sink = 5; return 0;
    case 70003: return sink ^ 6;
    case 70004: return sink - 7;
    case 70005: return sink | 8;
    case 9000000: return sink & 9;
    }
    return 0;
}

int nested(int a, int b) {
    int total = 0;
    for (int i = 0; i < a; i++) {
        switch ((i ^ b) % 9) {
        case 0: total += b; break;
        case 1: total ^= i; continue;
        case 2:
            switch (b) {
            case 10: total++; break;
            case 11: total += 2; break;
            case 12: sink = total; break;
            case 13: total -= sink; break;
            case 14: total <<= 1; break;
            }
            break;
        case 3: total -= 4; break;
        case 5: return total;
        case 6: total += dense(i); break;
        case 7: total = -total; break;
        }
        for (int j = 0; j < i; j++) {
            for (int k = 0; k < j; k++) total += sink * k;
            if (total > 1000000) break;
        }
    }
    return total;
}

int machine(const unsigned char *p, int n) {
    int state = 0, acc = 0;
    while (n-- > 0) {
        unsigned char c = *p++;
        switch (state) {
        case 0: state = c > 64 ? 1 : 2; break;
        case 1: acc += c; state = c & 1 ? 3 : 4; break;
        case 2: acc ^= c; state = 5; break;
        case 3: sink = acc; state = 0; break;
        case 4: acc *= 3; state = c % 7; break;
        case 5: acc -= c; if (!c) return acc; state = 6; break;
        case 6: printf("%d\n", acc); state = 7; break;
        case 7: acc = dense(acc); state = 0; break;
        }
    }
    return acc;
}

int interpret(const unsigned char *code) {
    static const void *const labels[] = {&&halt, &&inc, &&dec, &&dbl, &&out, &&neg};
    int acc = 0;
#define NEXT goto *labels[*code++]
    NEXT;
inc: acc++; NEXT;
dec: acc--; NEXT;
dbl: acc *= 2; NEXT;
out: sink = acc; NEXT;
neg: acc = -acc; NEXT;
halt: return acc;
}

static __attribute__((noinline)) int one(int x) { sink = x; return x + 1; }
static __attribute__((noinline)) int two(int x) { sink = -x; return x * 2; }
static __attribute__((noinline)) int three(int x) { sink ^= x; return x ^ 3; }
static const handler handlers[] = {one, two, three, dense};
handler current = one;

int tail_direct(int x) { return x > 5 ? one(x) : two(x); }
int tail_table(unsigned i, int x) { return i < 4 ? handlers[i](x) : 0; }
int tail_pointer(int x) { sink++; return current(x); }
struct object { const struct methods *methods; int value; };
struct methods { int (*get)(struct object *); int (*set)(struct object *, int); };
int tail_method(struct object *o, int v) { o->value++; return o->methods->set(o, v); }

__attribute__((noreturn, noinline)) static void fail(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

int checked(int x) {
    if (x < 0) fail("negative");
    if (x > 100) abort();
    return sink / x;
}

int last_call_fails(int x) {
    switch (x) {
    case 1: return 2;
    case 2: return 3;
    }
    fail("neither");
}

int main(int argc, char **argv) {
    struct object o = {0, 0};
    return dense(argc) + biased(argc) + negative(argc) + bytes(argc) + masked(argc) + unlimited(argc & 1) +
           sparse(argc) + nested(argc, 3) + machine((void *)argv[0], 3) + interpret((void *)"\1\2\0") +
           tail_direct(argc) + tail_table(argc, 1) + tail_pointer(argc) + checked(argc + 1) +
           (argc > 100 ? tail_method(&o, 1) + last_call_fails(argc) : 0);
}
