// Functions that can be called with any numbers, and whose result is all that they do.
static int state;

int switches(int x, int y) {
    int t = y;
    for (int i = 0; i < (y & 15); i++) {
        switch ((x + i) & 7) {
        case 0: t += x; break;
        case 1: t ^= i; break;
        case 2: t = t * 3 + 1; break;
        case 3: if (t > 100) return t; break;
        case 4: t -= state; break;
        case 5: t <<= 1; break;
        case 6: t = -t; break;
        }
    }
    return t;
}

int nested(int x, int y) {
    int t = 0;
    for (int i = 0; i < (x & 31); i++)
        for (int j = i; j < (y & 31); j++) {
            if ((i ^ j) & 1) t += i * j;
            else if (j == 17) break;
            else t -= j;
        }
    return t;
}

int fibonacci(int x, int y) { return (x &= 15) < 2 ? x + y : fibonacci(x - 1, y) + fibonacci(x - 2, y); }

static __attribute__((noinline)) int add(int a, int b) { return a + b; }
static __attribute__((noinline)) int mix(int a, int b) { return a * 31 ^ b; }
static int (*const table[4])(int, int) = {add, mix, switches, nested};

int through_table(int x, int y) { return table[x & 3](y, x); }
int all_of_them(int x, int y) {
    int t = 0;
    for (int i = 0; i < 4; i++) t = mix(t, table[i](x + i, y - i));
    return t;
}

int interpret(int x, int y) {
    static const void *const labels[] = {&&halt, &&inc, &&dbl, &&neg, &&swap};
    unsigned code = x;
    int acc = y, other = x, steps = 0;
#define NEXT                                   \
    do {                                       \
        if (steps++ > 12) goto halt;           \
        code = code * 1103515245u + 12345u;    \
        goto *labels[(code >> 16) % 5];        \
    } while (0)
    NEXT;
inc: acc++; NEXT;
dbl: acc *= 2; NEXT;
neg: acc = -acc; NEXT;
swap: { int t = acc; acc = other; other = t; } NEXT;
halt: return acc + other;
}

double average(int x, int y) {
    double sum = 0;
    for (int i = 0; i < (x & 63); i++) sum += (double)(i * y) / (i + 1.5);
    return sum * 0.25 + 1e-3;
}
