// Accesses whose addresses take more than a base and a displacement, in two threads.
#include <pthread.h>
#include <stdint.h>
#include <string.h>

static __thread int own;

static void *odd(void *unused) {
    static const char source[128] = "found: here";
    char target[128];
    uint64_t bits[16] = {0};
    const void *from = source;
    void *to = target;
    uint64_t count = 77;
    own += 1;
    __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
    from = source + 100;
    to = target + 100;
    count = 9;
    __asm__ volatile("std; rep movsl; cld" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
    count = 0;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(0) : "memory");
    to = (void *)source;
    count = 100;
    __asm__ volatile("repne scasb" : "+D"(to), "+c"(count) : "a"(':') : "memory", "cc");
    __asm__ volatile("movsb; stosw; lodsq" : "+S"(from), "=D"(to) : "1"(target) : "rax", "memory");
    __asm__ volatile("bts %1, (%0)" : : "r"(bits), "r"((uint64_t)700) : "memory", "cc");
    __asm__ volatile("xlatb" : : "b"(source), "a"(3) : "memory");
    __asm__ volatile("xchg %%rsp, %0; push $1; pop %%rax; xchg %%rsp, %0"
                     : : "r"(bits + 8) : "rax", "memory");
    __asm__ volatile("sub $64, %%rsp; push %0; pop 8(%%rsp); push %0; pop (%1); add $64, %%rsp"
                     : : "r"(count), "r"(bits) : "memory", "cc");
    __asm__ volatile("push %%rcx; mov $3, %%ecx; 1: addl $1, (%0, %%rcx, 4); loop 1b; pop %%rcx"
                     : : "r"(bits) : "memory", "cc");
    __asm__ volatile("enter $32, $0; movl $1, -8(%%rbp); leave" : : : "memory");
    return unused;
}

int main(void) {
    pthread_t thread;
    odd(0);
    if (pthread_create(&thread, 0, odd, 0)) {
        return 1;
    }
    return pthread_join(thread, 0);
}
