/* Calls a function with texts of all kinds, once it is told to, or its input has ended. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) long look(const char *text, long length) {
    __asm__ volatile("" ::"r"(text), "r"(length) : "memory");
    return length;
}

static void *in_thread(void *name) {
    for (int i = 0; i < 10; i++) look(name, 1);
    return NULL;
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    getchar();
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    if (!strcmp(kind, "lengths")) {
        /* Every length, at every place before the end of what is mapped. */
        for (int length = 0; length < 130; length++)
            for (int behind = 1; behind < 4; behind++) {
                char *text = page + 4096 - length - behind;
                memset(text, 'a' + length % 26, length);
                text[length] = 0;
                look(text, length);
            }
    } else if (!strcmp(kind, "unreadable")) {
        look(NULL, 0);
        look((char *)8, 0);
        look(page + 4096, 0);
        look((char *)0x8000000000000000, 0);
        /* Ends where memory does. */
        memcpy(page + 4093, "end", 3);
        look(page + 4093, 0);
    } else if (!strcmp(kind, "bytes")) {
        look("gr\xc3\xbc\xc3\x9f", 0);
        look("\xff\xfe", 0);
        look("b'\\xff\\xfe'", 0);
        look("(unreadable)", 0);
        look("\"\"", 0);
        look("tab\tand\nline", 0);
        look("", 0);
    } else if (!strcmp(kind, "lengths-given")) {
        for (long n = -2; n < 14; n++) look("0123456789", n);
    } else if (!strcmp(kind, "many")) {
        char text[32];
        for (int round = 0; round < 2; round++)
            for (int i = 0; i < 5000; i++) {
                snprintf(text, sizeof text, "text %d", i);
                look(text, 1);
            }
    } else if (!strcmp(kind, "threads")) {
        char names[40][16];
        for (int i = 0; i < 40; i++) {
            pthread_t thread;
            snprintf(names[i], sizeof names[i], "thread %d", i % 8);
            pthread_create(&thread, NULL, in_thread, names[i]);
            pthread_join(thread, NULL);
        }
    } else if (!strcmp(kind, "forks")) {
        char text[16];
        for (int i = 0; i < 5; i++) {
            if (fork() == 0) {
                snprintf(text, sizeof text, "child %d", i);
                for (int k = 0; k < i; k++) look(text, 1);
                _exit(0);
            }
            wait(NULL);
        }
        look("parent", 1);
    }
    return 0;
}
