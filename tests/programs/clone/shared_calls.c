/* A call that is reached by two ways: from the page before it, and by a branch from there. What comes before the call, or
   what is called, is changed between the rounds, by way of mprotect. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

static unsigned char *code;
static unsigned char *at;

static void bytes(const void *from, size_t count) {
    memcpy(at, from, count);
    at += count;
}

static void word(int32_t value) { bytes(&value, 4); }

static int (*start)(int, int (*)(void));

/* int start(int way, int (*called)(void)): adds to what is called the first number, if way is not zero, and the second. */
static void build(const char *how, int first, int second, int third) {
    unsigned char *call_of = code + 2 * PAGE;
    at = call_of;
    bytes("\xb8", 1), word(third), bytes("\xc3", 1); /* mov eax, third; ret */
    at = code + PAGE - 25;
    start = (int (*)(int, int (*)(void)))at;
    bytes("\x53\x31\xdb\x85\xff\x0f\x84", 7); /* push rbx; xor ebx, ebx; test edi, edi; je to the call */
    word((int32_t)(code + PAGE + 8 - (at + 4)));
    bytes("\xbb", 1), word(first); /* mov ebx, first */
    while (at < code + PAGE + 8) bytes("\x90", 1);
    if (!strcmp(how, "direct")) bytes("\xe8", 1), word((int32_t)(call_of - (at + 4)));
    if (!strcmp(how, "register")) bytes("\xff\xd6", 2);                                            /* call rsi */
    if (!strcmp(how, "memory")) bytes("\xff\x15", 2), word((int32_t)(code + 3 * PAGE - (at + 4))); /* call [rip + x] */
    bytes("\x01\xd8\x05", 3), word(second), bytes("\x5b\xc3", 2); /* add eax, ebx; add eax, second; pop rbx; ret */
    memcpy(code + 3 * PAGE, &call_of, sizeof call_of);
}

static void allow(int page, int protection) {
    if (mprotect(code + page * PAGE, PAGE, protection)) abort();
}

int main(int count, char **words) {
    if (count != 2) return 2;
    alarm(20);
    code = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 3;
    build(words[1], 1, 10, 100);
    for (int page = 0; page < 4; page++) allow(page, PROT_READ | PROT_EXEC);
    int (*called)(void) = (int (*)(void))(code + 2 * PAGE);
    long sum = 0;
    int numbers[3] = {1, 10, 100};
    for (int round = 0; round < 60; round++) {
        for (int again = 0; again < 50; again++)
            for (int way = 0; way < 2; way++) {
                int result = start(!way, called);
                sum = sum * 3 % 1000003 + result;
                if (result != numbers[1] + numbers[2] + (way ? 0 : numbers[0])) return 4;
            }
        /* One of the numbers is another one: on the page before the call, behind it, or in what is called. */
        int changed = round % 3;
        numbers[changed] += 1 + round;
        unsigned char *place[3] = {code + PAGE - 13, code + PAGE + 0, code + 2 * PAGE + 1};
        if (changed == 1) {
            place[1] = memmem(code + PAGE, PAGE, "\x01\xd8\x05", 3);
            place[1] += 3;
        }
        allow(changed, PROT_READ | PROT_WRITE);
        memcpy(place[changed], &numbers[changed], 4);
        allow(changed, PROT_READ | PROT_EXEC);
    }
    printf("%ld\n", sum);
    return 0;
}
