// Functions and loops on one line, a switch, recursion.
#include <stdio.h>
static int f(int n) { return n > 2 ? f(n - 1) + 1 : 0; }
int main(int argc, char **argv) {
    int s = 0;
    for (int i = 0; i < 10; i++)
        if (i & 1)
            s += f(i);
        else
            s -= 1;
    switch (s) { case 1: s = 2; break; case 5: s = 3; break; case 7: s=1; break; case 8: s = 12; break; case 9: s=13; break; default: s = 9; }
    while (argc--) s++;
    printf("%d\n", s);
    return 0;
}
