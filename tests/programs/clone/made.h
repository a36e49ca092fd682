/* Code that programs make and change. A case here is written as
 *
 *   SMC(name, "what it says", "what it would say if the change went unseen") { ... }
 *
 * at the start of a line, and says its results in turn; check.h has the rest. Where it would say one thing
 * or another, depending on when code is translated, there is " | " between them. */
#ifndef MADE_H
#define MADE_H
#include "check.h"
#include <cpuid.h>
#include <signal.h>
#include <sys/mman.h>

#define PAGE 4096ul
#define RW (PROT_READ | PROT_WRITE)
#define RX (PROT_READ | PROT_EXEC)
#define RWX (PROT_READ | PROT_WRITE | PROT_EXEC)

static char said[4096];

__attribute__((unused, format(printf, 1, 2))) static void say(const char *format, ...) {
    size_t length = strlen(said);
    if (length && length + 1 < sizeof said) strcpy(said + length++, " ");
    va_list values;
    va_start(values, format);
    vsnprintf(said + length, sizeof said - length, format, values);
    va_end(values);
}

__attribute__((unused)) static void conclude(const char *seen, const char *unseen) {
    puts(said);
    if (strcmp(said, seen) == 0) return;
    size_t length = strlen(said);
    for (const char *one = unseen; one; one = strstr(one, " | ") ? strstr(one, " | ") + 3 : NULL)
        if (strncmp(one, said, length) == 0 && (!one[length] || strncmp(one + length, " | ", 3) == 0))
            wrong("a change went unseen");
    wrong("neither \"%s\", which is right, nor \"%s\", as if nothing had changed", seen, unseen);
}

#define SMC(name, seen, unseen)                                                                     \
    static void smc_##name(long amount);                                                            \
    CASE(name) {                                                                                    \
        smc_##name(amount);                                                                         \
        conclude(seen, unseen);                                                                     \
    }                                                                                               \
    static void smc_##name(long amount __attribute__((unused)))

/* A piece of assembly that is copied to where it is executed. Its labels are known by their names. */
#define FRAGMENT(name, code)                                                                        \
    extern const uint8_t name[], name##_end[];                                                      \
    asm(".pushsection .rodata\n" #name ":\n" code "\n" #name "_end:\n.popsection\n")
#define LABEL(name) extern const uint8_t name[]

typedef long function(long, long, long);

__attribute__((unused)) static uint8_t *pages(size_t count, int protection) {
    uint8_t *memory = mmap(NULL, count * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}
#define PUT(place, fragment) memcpy(place, fragment, (size_t)(fragment##_end - fragment))
#define AT(place, fragment, label) ((uint8_t *)(place) + (label - fragment))

/* mov $value, %eax; ret */
__attribute__((unused)) static void put_constant(uint8_t *place, uint32_t value) {
    place[0] = 0xb8;
    memcpy(place + 1, &value, 4);
    place[5] = 0xc3;
}
enum { CONSTANT = 6 };
/* A jump or a call of four bytes' distance, of which this is the distance. */
__attribute__((unused)) static void put_distance(uint8_t *place, const uint8_t *target) {
    int32_t distance = (int32_t)(target - (place + 4));
    memcpy(place, &distance, 4);
}
/* The compiler knows nothing of what is called. */
APART __attribute__((unused)) static long call(const void *place) {
    return ((function *)place)(0, 0, 0);
}
APART __attribute__((unused)) static long call_with(const void *place, long a, long b, long c) {
    return ((function *)place)(a, b, c);
}
/* What the processor wants before it executes what was written elsewhere or by another. */
__attribute__((unused)) static void serialize(void) {
    unsigned a, b, c, d;
    __cpuid(0, a, b, c, d);
    (void)a, (void)b, (void)c, (void)d;
}
#endif
