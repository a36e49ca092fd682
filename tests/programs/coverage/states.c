// A machine of states over text: many cases, some of which never come.
#include <stdio.h>
#include <string.h>

enum state { OUTSIDE, WORD, NUMBER, STRING, COMMENT };

struct counts {
    int words, numbers, strings, comments, errors;
};

static enum state next(enum state state, char c, struct counts *counts) {
    switch (state) {
    case OUTSIDE:
        if (c >= 'a' && c <= 'z') {
            counts->words++;
            return WORD;
        } else if (c >= '0' && c <= '9') {
            counts->numbers++;
            return NUMBER;
        } else if (c == '"') {
            counts->strings++;
            return STRING;
        } else if (c == '#') {
            counts->comments++;
            return COMMENT;
        }
        if (c != ' ' && c != '\n')
            counts->errors++;
        return OUTSIDE;
    case WORD:
        if ((c >= 'a' && c <= 'z') || c == '_')
            return WORD;
        return next(OUTSIDE, c, counts);
    case NUMBER:
        if (c >= '0' &&
            c <= '9')
            return NUMBER;
        return next(OUTSIDE, c, counts);
    case STRING:
        return c == '"' ? OUTSIDE : STRING;
    case COMMENT:
        if (c == '\n') return OUTSIDE;
        return COMMENT;
    }
    counts->errors += 100;
    return OUTSIDE;
}

static int run(const char *text, struct counts *counts) {
    enum state state = OUTSIDE;
    for (const char *at = text; *at; at++)
        state = next(state, *at, counts);
    if (state == STRING) {
        counts->errors++;
        return -1;
    }
    return 0;
}

int main(void) {
    struct counts counts;
    memset(&counts, 0, sizeof counts);
    static const char text[] = "let answer be 42 # as everybody knows\n"
                               "say \"what is 6 times 9\" 13 times\n"
                               "and a_word";
    if (run(text, &counts) < 0)
        puts("no end");
    printf("%d words, %d numbers, %d strings, %d comments, %d errors\n",
           counts.words,
           counts.numbers,
           counts.strings,
           counts.comments,
           counts.errors);
    return counts.errors;
}
