// Writes reports: each is a table of orders, as a page of HTML.
#include <string.h>

#include "program.h"

enum { ROWS = 6000 };

static void append_text(char *page, const char *text) { strcat(page, text); }

static size_t write_report(char *page, uint64_t *state) {
    char row[80];
    strcpy(page, "<table>\n");
    for (int i = 0; i < ROWS; i++) {
        uint64_t order = next_random(state) % 1000000;
        snprintf(row, sizeof row, "<tr><td>%d</td><td>%lu</td></tr>\n", i, (unsigned long)order);
        append_text(page, row);
    }
    append_text(page, "</table>\n");
    return strlen(page);
}

int main(int argc, char **argv) {
    (void)argc;
    count_in(argv[1]);
    char *page = malloc(ROWS * 80 + 100);
    uint64_t state = 88172645463325252u;
    size_t longest = 0;
    for (;;) {
        size_t size = write_report(page, &state);
        longest = size > longest ? size : longest;
        count(1);
    }
    return (int)longest;
}
