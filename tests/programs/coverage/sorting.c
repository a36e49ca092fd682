// Ways to sort: nested loops, recursion, while and do.
#include <stdio.h>
#include <string.h>

#define COUNT 60

static void swap(int *a, int *b) {
    int kept = *a;
    *a = *b;
    *b = kept;
}

static void bubble(int *all, int n) {
    int changed, rounds = 0;
    do {
        changed = 0;
        for (int i = 1; i < n; i++)
            if (all[i - 1] > all[i]) {
                swap(&all[i - 1], &all[i]);
                changed = 1;
            }
    } while (changed && ++rounds);
}

static void quick(int *all, int low, int high) {
    if (low >= high)
        return;
    int pivot = all[(low + high) / 2], i = low, j = high;
    while (i <= j) {
        while (all[i] < pivot) i++;
        while (all[j] > pivot)
            j--;
        if (i <= j)
            swap(&all[i++], &all[j--]);
    }
    quick(all, low, j);
    quick(all, i, high);
}

static void heap(int *all, int n) {
    for (int start = n / 2, end = n; end > 1;) {
        if (start > 0)
            start--;
        else
            swap(&all[--end], &all[0]);
        for (int root = start, child; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && all[child] < all[child + 1])
                child++;
            if (all[root] >= all[child])
                break;
            swap(&all[root], &all[child]);
        }
    }
}

static void insertion(int *all, int n) {
    for (int i = 1; i < n; i++) {
        int moved = all[i], j = i;
        for (; j > 0 && all[j - 1] > moved; j--) all[j] = all[j - 1];
        all[j] = moved;
    }
}

static int is_sorted(const int *all, int n) {
    for (int i = 1; i < n; i++)
        if (all[i - 1] > all[i])
            return 0;
    return 1;
}

int main(void) {
    int given[COUNT], all[COUNT];
    unsigned seed = 7;
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 1664525 + 1013904223;
        given[i] = (int)(seed >> 24);
    }
    int wrong = 0;
    for (int way = 0; way < 4; way++) {
        memcpy(all, given, sizeof all);
        if (way == 0) bubble(all, COUNT);
        else if (way == 1) quick(all, 0, COUNT - 1);
        else if (way == 2)
            heap(all, COUNT);
        else
            insertion(all, COUNT);
        if (!is_sorted(all, COUNT)) {
            wrong++;
            printf("way %d does not sort\n", way);
        }
    }
    printf("%d wrong\n", wrong);
    return wrong;
}
