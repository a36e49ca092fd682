// One repeated store over three pages, the middle one of which may be written only once it has faulted.
#include <signal.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
char pages[3 * PAGE] __attribute__((aligned(PAGE)));

static void on_fault(int number) {
    (void)number;
    mprotect(pages + PAGE, PAGE, PROT_READ | PROT_WRITE);
}

int main(void) {
    signal(SIGSEGV, on_fault);
    mprotect(pages + PAGE, PAGE, PROT_NONE);
    char *to = pages;
    long count = sizeof pages;
    __asm__ volatile("fills: rep stosb" : "+D"(to), "+c"(count) : "a"(1) : "memory");
    return count != 0 || pages[PAGE] != 1 || pages[3 * PAGE - 1] != 1;
}
