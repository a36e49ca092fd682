// A bit of all that a debugger shows of C: read by tests/gdb, which walks through it at random.
// "call", "watch", "set" and "jump" in comments are what it does there.
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum Shape { CIRCLE, SQUARE, STAR };

struct Point {
    int x, y;
};

struct Figure {
    enum Shape shape;
    unsigned is_big : 1, color : 7;
    struct Point corners[4];
    union {
        double radius;
        uint64_t bits;
    } size;
    const char *name;
    struct Figure *next;
};

volatile long scratch; // set
long total;            // watch
double average;
char text[64];
struct Figure *figures;
static __thread int depth;

int twice(int number) { // call
    return number * 2;
}

static int add_points(struct Point one, struct Point other) { return one.x + other.y; }

int weigh(int a, long b, char c, short d, unsigned e, float f, double g, int h, long i) {
    return (int)(a + b + c + d + e + f + g + h + i);
}

static struct Figure *make(enum Shape shape, const char *name, int size) {
    struct Figure *made = calloc(1, sizeof *made);
    made->shape = shape;
    made->is_big = size > 10;
    made->color = size % 100;
    made->size.radius = size / 2.0;
    made->name = name;
    for (int i = 0; i < 4; i++) {
        made->corners[i].x = size * i;
        made->corners[i].y = -i;
    }
    made->next = figures;
    figures = made;
    return made;
}

static double area(const struct Figure *figure) {
    double found;
    switch (figure->shape) {
    case CIRCLE:
        found = figure->size.radius * figure->size.radius * 3.14;
        break;
    case SQUARE:
        found = figure->corners[1].x * (double)figure->corners[2].x;
        break;
    default:
        found = (double)figure->color;
    }
    return found;
}

static long ackermann(long m, long n) {
    depth++;
    long found;
    if (m == 0)
        found = n + 1;
    else if (n == 0)
        found = ackermann(m - 1, 1);
    else
        found = ackermann(m - 1, ackermann(m, n - 1));
    depth--;
    return found;
}

static int sum_of(int count, ...) {
    va_list numbers;
    va_start(numbers, count);
    int sum = 0;
    for (int i = 0; i < count; i++) sum += va_arg(numbers, int);
    va_end(numbers);
    return sum;
}

static int by_x(const void *one, const void *other) {
    const struct Point *a = one, *b = other;
    return (a->x > b->x) - (a->x < b->x);
}

static void sort_points(unsigned seed) {
    struct Point points[12];
    for (int i = 0; i < 12; i++) {
        seed = seed * 1103515245 + 12345;
        points[i] = (struct Point){(int)(seed >> 20), i};
    }
    qsort(points, 12, sizeof *points, by_x);
    total += points[0].x + points[11].y;
}

static size_t write_words(int round) {
    char word[24] = "";
    size_t length = (size_t)snprintf(word, sizeof word, "round %d of %.1f", round, average);
    memset(text, '.', sizeof text - 1);
    memcpy(text, word, length);
    char *second = strchr(text, ' ');
    return second ? strlen(second) : 0;
}

static void mix(float *into, const float *from, int count) {
    for (int i = 0; i < count; i++) into[i] = into[i] * 0.5f + from[i];
}

static float vectors(int round) {
    static float into[64], from[64];
    for (int i = 0; i < 64; i++) from[i] = (float)(round + i);
    mix(into, from, 64);
    return into[round % 64];
}

static void drop_figures(void) {
    while (figures) {
        struct Figure *next = figures->next;
        free(figures);
        figures = next;
    }
}

static int (*const chosen[])(int) = {twice, abs};

static void do_round(int round) {
    char name[16] = "figure";
    name[6] = (char)('0' + round % 10);
    struct Figure *figure = make((enum Shape)(round % 3), "some", round % 20);
    average = (average + area(figure)) / 2;
    total += add_points(figure->corners[1], figure->corners[3]);
    total += weigh(round, 2, 'c', 4, 5u, 6.5f, 7.25, 8, 9);
    if (round % 8 == 0) total += ackermann(2, round % 3);
    total += sum_of(3, round, round * 2, 7) + chosen[round & 1](-round);
    sort_points((unsigned)round);
    total += (long)write_words(round) + (long)vectors(round);
    scratch += name[6]; // jump
    if (round % 16 == 15) drop_figures();
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    for (int round = 0; round < rounds; round++) {
        do_round(round);
    }
    printf("%ld %.2f %s\n", total, average, text);
    return 0;
}
