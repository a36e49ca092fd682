/* A program of many cases, each of which checks itself:
 *
 *   PROGRAM CASE [AMOUNT]
 *
 * runs one case, which prints what came of it; with a reason on standard error and the exit code 1 if
 * that is wrong. What a case prints does not depend on addresses, time or luck. AMOUNT says how much of
 * it there is to do, where a case can do more or less; without it a case does little.
 *
 * A case is written as CASE(name) { ... } at the start of a line: the tests find it by this. */
#ifndef CHECK_H
#define CHECK_H
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct one_case {
    const char *name;
    void (*run)(long amount);
};

#define CASE(name)                                                                                  \
    static void case_##name(long amount);                                                           \
    static const struct one_case entry_##name                                                       \
        __attribute__((used, section("cases"), aligned(8))) = {#name, case_##name};                 \
    static void case_##name(long amount __attribute__((unused)))

extern const struct one_case __start_cases[], __stop_cases[];

#define APART __attribute__((noipa))
#define ASSEMBLY __attribute__((naked, noipa))

/* For signal handlers, too: nothing is allocated. */
__attribute__((noreturn, cold, unused, format(printf, 1, 2))) static void wrong(const char *format, ...) {
    char text[512];
    int kept = errno;
    va_list values;
    va_start(values, format);
    int length = vsnprintf(text, sizeof text - 64, format, values);
    va_end(values);
    length += snprintf(text + length, 64, " (errno %d)\n", kept);
    if (write(2, text, (size_t)length) < 0) _exit(3);
    _exit(1);
}

#define CHECK(condition)                                                                            \
    do {                                                                                            \
        if (!(condition)) wrong("%s:%d: not so: %s", __FILE_NAME__, __LINE__, #condition);          \
    } while (0)

#define SAME(left, right)                                                                           \
    do {                                                                                            \
        uint64_t left_value = (uint64_t)(left), right_value = (uint64_t)(right);                    \
        if (left_value != right_value)                                                              \
            wrong("%s:%d: %s is %#lx, %s is %#lx", __FILE_NAME__, __LINE__, #left,                  \
                  (unsigned long)left_value, #right, (unsigned long)right_value);                   \
    } while (0)

__attribute__((unused)) static long or_else(long amount, long usual) {
    return amount > 0 ? amount : usual;
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (const struct one_case *one = __start_cases; count > 1 && one < __stop_cases; one++)
        if (strcmp(one->name, words[1]) == 0) {
            one->run(count > 2 ? atol(words[2]) : 0);
            printf("%s: well\n", one->name);
            return 0;
        }
    fprintf(stderr, "usage: %s CASE [AMOUNT]\n", words[0]);
    return 2;
}
#endif
