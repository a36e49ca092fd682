// A calculator: recursion, a switch, errors that are never met.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static const char *at;
static int errors;

static long expression(void);

static void skip(void) {
    while (isspace((unsigned char)*at))
        at++;
}

static long number(void) {
    long value = 0;
    while (isdigit((unsigned char)*at)) {
        value = 10 * value + (*at - '0');
        at++;
    }
    return value;
}

static long factor(void) {
    skip();
    if (*at == '(') {
        at++;
        long value = expression();
        skip();
        if (*at == ')')
            at++;
        else
            errors++;
        return value;
    }
    if (*at == '-') {
        at++;
        return -factor();
    }
    if (!isdigit((unsigned char)*at)) {
        errors++;
        return 0;
    }
    return number();
}

static long term(void) {
    long value = factor();
    for (;;) {
        skip();
        switch (*at) {
        case '*':
            at++;
            value *= factor();
            break;
        case '/': {
            at++;
            long by = factor();
            if (by == 0) {
                fprintf(stderr, "division by zero\n");
                exit(3);
            }
            value /= by;
            break;
        }
        default:
            return value;
        }
    }
}

static long expression(void) {
    long value = term();
    for (skip(); *at == '+' || *at == '-'; skip()) {
        if (*at++ == '+')
            value += term();
        else
            value -= term();
    }
    return value;
}

int main(void) {
    static const char *const texts[] = {
        "1 + 2 * 3", "(4 - 1) * (2 + 2) / 3", "-5 + 10 - - 2", "7 * (8 - (9 / 3))", "2 * (3", "",
    };
    long sum = 0;
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        at = texts[i];
        long value = expression();
        printf("%s = %ld\n", texts[i], value);
        sum += value;
    }
    return errors == 2 && sum > 0 ? 0 : 1;
}
