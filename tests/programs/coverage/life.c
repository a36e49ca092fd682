// Cells that live and die: loops in loops, macros, conditions on one line.
#include <stdio.h>
#include <string.h>

#define WIDTH 16
#define HEIGHT 12
#define WRAP(n, size) (((n) + (size)) % (size))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

typedef unsigned char board[HEIGHT][WIDTH];

static int neighbours(board cells, int y, int x) {
    int sum = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) {
            if (dy == 0 && dx == 0) continue;
            sum += cells[WRAP(y + dy, HEIGHT)][WRAP(x + dx, WIDTH)];
        }
    return sum;
}

static int step(board cells) {
    board then;
    int changes = 0;
    for (int y = 0; y < HEIGHT; y++) {
        for (int x = 0; x < WIDTH; x++) {
            int n = neighbours(cells, y, x);
            then[y][x] = n == 3 || (n == 2 && cells[y][x]);
            changes += then[y][x] != cells[y][x];
        }
    }
    memcpy(cells, then, sizeof then);
    return changes;
}

static void show(board cells) {
    for (int y = 0; y < HEIGHT; y++, putchar('\n'))
        for (int x = 0; x < WIDTH; x++) putchar(cells[y][x] ? '#' : '.');
}

int main(int argc, char **argv) {
    board cells = {{0}};
    static const int glider[][2] = {{0, 1}, {1, 2}, {2, 0}, {2, 1}, {2, 2}};
    for (unsigned i = 0; i < 5; i++) cells[glider[i][0]][glider[i][1]] = 1;
    int most = 0, generation;
    for (generation = 0; generation < 30; generation++) {
        int changes = step(cells);
        most = MAX(most, changes);
        if (!changes)
            break;
    }
    if (argc > 1 && argv[1][0] == 'v')
        show(cells);
    printf("%d generations, %d changes at most\n", generation, most);
    return 0;
}
