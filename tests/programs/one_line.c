/* Control flow that is written on one line: each function has its work on a single one. */
#include <stdio.h>

static int a, b, c;

static void jump_table(int x)
{
    switch (x) { case 0: a++; break; case 1: b++; break; case 2: c++; break; case 3: a += 2; break; case 4: b += 2; break; case 5: c += 2; break; case 6: a--; break; case 9: b--; break; default: c--; }
}

static void looping_table(int n)
{
    for (int i = 0; i < n; i++) switch (i % 10) { case 0: a++; break; case 1: b++; break; case 2: c++; continue; case 3: a += 2; case 4: b += 2; break; case 5: c += 2; break; case 6: a--; break; case 9: b--; }
}

static void nested_tables(int x, int y)
{
    switch (x) { case 0: a++; break; case 1: switch (y) { case 0: a++; break; case 1: b++; break; case 2: c++; break; case 3: a--; break; case 4: b--; break; case 5: c--; } break; case 2: b++; break; case 3: c++; break; case 4: a--; break; case 5: b--; }
}

static void outer_table(int x, int y)
{
    switch (x) {
    case 0: a++; break;
    case 1: switch (y) { case 0: a++; break; case 1: b++; break; case 2: c++; break; case 3: a--; break; case 4: b--; break; case 5: c--; } break;
    case 2: b++; break;
    case 3: c++; break;
    case 4: switch (y) { case 0: a++; break; case 1: b++; break; case 2: c++; break; case 3: a--; break; case 4: b--; break; case 5: c--; } break;
    case 5: b--;
    }
}

static int sparse_switch(int x)
{
    switch (x) { case 0: return 3; case 1000: a++; break; case 7: b++; break; default: return 1; } return 2;
}

static int ternaries(int x)
{
    return x < 10 ? x < 5 ? x < 2 ? 1 : 2 : x < 7 ? 3 : 4 : x < 15 ? x & 1 ? 5 : 6 : 7;
}

static int short_circuits(int x)
{
    return (x && x < 10) || (x > 15 && (x & 1)) || !(x % 3);
}

static void conditions(int x)
{
    if ((x & 1) && (x & 2)) a++; else if ((x & 4) || x > 8) b++; else c++;
}

static void loop(int n)
{
    for (int i = 0; i < n; i++) a += i;
}

static void loops(int n)
{
    for (int i = 0; i < n; i++) for (int j = 0; j < i; j++) if (j & 1) a++; else b++;
}

static void other_loops(int n)
{
    int i = n; while (i-- > 0) { if (i == 7) continue; if (i == 3) break; a++; } do { b++; } while (++i < n);
}

static int statements(int x)
{
    int y = x; y++; a += y; if (y > 5) b++; c += y; while (y > 3) y -= 2; return y;
}

static void computed_goto(const unsigned char *code)
{
    static void *const to[] = {&&one, &&two, &&three, &&end}; goto *to[*code++]; one: a++; goto *to[*code++]; two: b++; goto *to[*code++]; three: c++; goto *to[*code++]; end: return;
}

static int called(int x) { return x > 4 ? x : -x; }

static int calls(int x)
{
    return called(x) + called(x + 1) + (x & 1 ? called(x + 2) : 0);
}

static void go_to(int n)
{
    again: if (n-- > 0) { a++; if (n & 1) goto again; b++; goto again; }
}

int main(void)
{
    static const unsigned char code[] = {0, 1, 2, 1, 0, 0, 2, 3};
    for (int i = 0; i < 20; i++) {
        jump_table(i % 11);
        looping_table(i);
        nested_tables(i % 7, i % 5);
        outer_table(i % 7, i % 5);
        a += sparse_switch(i % 9);
        b += ternaries(i);
        c += short_circuits(i);
        conditions(i);
        loop(i);
        loops(i);
        other_loops(i);
        c += statements(i);
        computed_goto(code);
        b += calls(i);
        go_to(i);
    }
    for (int i = 0; i < 20000; i++) { switch (i % 10) { case 0: a++; break; case 1: b++; break; case 2: c++; break; case 3: a += 2; break; case 4: b += 2; break; case 5: c += 2; break; case 6: a--; break; case 9: b--; break; } }
    printf("%d %d %d\n", a, b, c);
    return 0;
}
