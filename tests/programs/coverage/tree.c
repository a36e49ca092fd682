// A tree, a search, conditions over several lines, labels.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { struct node *left, *right; int key; };
static struct node *insert(struct node *at, int key) {
    if (!at) {
        at = calloc(1, sizeof *at);
        at->key = key;
    } else if (key < at->key)
        at->left = insert(at->left, key);
    else if (key > at->key)
        at->right = insert(at->right, key);
    return at;
}
static int walk(const struct node *at) { return at ? walk(at->left) + 1 + walk(at->right) : 0; }
static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}
static const char *name(int n) {
    switch (n % 7) {
    case 0: return "zero";
    case 1:
    case 2:
        return "few";
    case 3: {
        static char text[16];
        snprintf(text, sizeof text, "%d", n);
        return text;
    }
    case 4: n++; /* falls through */
    default:
        break;
    }
    return n > 100 ? "many"
         : n > 50 ? "some"
         : "rest";
}
static int find(const int *all, int n, int what)
{
    int low = 0, high = n - 1;
    while (low <= high) {
        int mid = (low + high) / 2;
        if (all[mid] == what) goto found;
        if (all[mid] < what) low = mid + 1; else high = mid - 1;
    }
    return -1;
found:
    return low;
}
int main(int argc, char **argv) {
    int all[200], n = 0;
    unsigned seed = argc > 1 ? atoi(argv[1]) : 1;
    struct node *root = NULL;
    for (int i = 0; i < 200; i++) {
        seed = seed * 1103515245 + 12345;
        all[n++] = seed >> 20;
        root = insert(root,
                      seed >> 20);
    }
    qsort(all, n, sizeof *all, compare);
    int hits = 0, i = 0;
    do hits += find(all, n, i++ * 7) >= 0; while (i < 300);
    for (int a = 0, b = 10; a < b &&
         b > 2; a++, b--)
        for (int c = 0; c < 3; c++) hits += c == a;
    for (;;) { if (hits++ > 80) break; }
    size_t length = 0;
    for (int k = 0; k < 300; k++)
        length += strlen(name(k));
    if (hits > 10000 || (length > 1000000 && hits % 2))
        puts("never");
    while (i --> 0)
        ;
    double sum = 0; for (int k = 0; k < n; k++) sum += all[k] / 3.0;
    printf("%d %d %zu %f\n", hits, walk(root), length, sum);
    return hits > 0 ? 0 :
        1;
}
