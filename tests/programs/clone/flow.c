/* Ways to get from one instruction to another, and what the program can see of them on the way. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#define OFTEN 1000

/* --- returns --- */

ASSEMBLY static long skips_a_caller(void) {
    asm("call 2f\n"
        "mov $1, %eax\n" /* jumped over: the callee returns behind it */
        "ret\n"
        "1: mov $2, %eax\n"
        "ret\n"
        "2: lea 1b(%rip), %rcx\n"
        "mov %rcx, (%rsp)\n"
        "ret");
}
ASSEMBLY static long push_and_return(void) {
    asm("lea 1f(%rip), %rax\n"
        "push %rax\n"
        "ret\n"
        "ud2\n"
        "1: mov $3, %eax\n"
        "ret");
}
/* As compilers did against a weakness of processors: the call is never returned from. */
ASSEMBLY static long retpoline(void) {
    asm("lea 3f(%rip), %rax\n"
        "call 2f\n"
        "1: pause\n"
        "lfence\n"
        "jmp 1b\n"
        "2: mov %rax, (%rsp)\n"
        "ret\n"
        "3: mov $4, %eax\n"
        "ret");
}
ASSEMBLY static long drops_a_frame(void) {
    asm("call 1f\n"
        "ud2\n"
        "1: add $8, %rsp\n"
        "mov $5, %eax\n"
        "ret");
}
CASE(changed_returns) {
    for (int i = 0; i < OFTEN; i++) {
        SAME(skips_a_caller(), 2);
        SAME(push_and_return(), 3);
        SAME(retpoline(), 4);
        SAME(drops_a_frame(), 5);
    }
}

ASSEMBLY static long returns_elsewhere(long which __attribute__((unused))) {
    asm("lea 1f(%rip), %rax\n"
        "lea (%rax, %rdi, 8), %rax\n"
        ".balign 8, 0x90\n"
        "nop\n nop\n nop\n call 2f\n" /* eight bytes */
        "1: mov $10, %eax\n ret\n .balign 8, 0x90\n"
        "mov $11, %eax\n ret\n .balign 8, 0x90\n"
        "mov $12, %eax\n ret\n .balign 8, 0x90\n"
        "mov $13, %eax\n ret\n .balign 8, 0x90\n"
        "2: mov %rax, (%rsp)\n ret");
}
CASE(returns_by_data) {
    for (int i = 0; i < OFTEN; i++) SAME(returns_elsewhere(i * 7 % 4), 10 + i * 7 % 4);
}

ASSEMBLY static long takes_sixteen(long a __attribute__((unused)), long b __attribute__((unused))) {
    asm("mov %rsp, %rcx\n"
        "push %rdi\n"
        "push %rsi\n"
        "call 1f\n"
        "cmp %rsp, %rcx\n"
        "jne 2f\n"
        "ret\n"
        "1: mov 8(%rsp), %rax\n"
        "shl $32, %rax\n"
        "add 16(%rsp), %rax\n"
        "ret $16\n"
        "2: ud2");
}
CASE(ret_with_a_number) {
    for (long i = 0; i < OFTEN; i++) SAME(takes_sixteen(i, 3), i + (3l << 32));
}

APART static void *who_called(void) { return __builtin_return_address(0); }
ASSEMBLY static long knows_its_caller(void) {
    asm("call 1f\n"
        "2: ret\n"
        "1: mov (%rsp), %rax\n"
        "lea 2b(%rip), %rcx\n"
        "sub %rcx, %rax\n"
        "ret");
}
APART static long callers_match(void) {
    static void *seen;
    void *here;
    asm volatile("lea 1f(%%rip), %1\n"
                 "call *%2\n"
                 "1: mov %%rax, %0"
                 : "=m"(seen), "=&r"(here)
                 : "r"(who_called)
                 : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
    return (char *)seen - (char *)here;
}
CASE(return_address_read) {
    for (int i = 0; i < OFTEN; i++) {
        SAME(knows_its_caller(), 0);
        SAME(callers_match(), 0);
    }
    char *caller = who_called();
    CHECK(caller > (char *)case_return_address_read && caller < (char *)case_return_address_read + 4096);
}

ASSEMBLY static long call_and_pop(void) {
    asm("call 1f\n"
        "1: pop %rax\n"
        "lea 1b(%rip), %rcx\n"
        "sub %rcx, %rax\n"
        "ret");
}
ASSEMBLY static const char *text_behind_a_call(void) {
    asm("call 1f\n"
        ".asciz \"inline\"\n"
        "1: pop %rax\n"
        "ret");
}
ASSEMBLY static long skips_an_argument(void) {
    asm("call 1f\n"
        ".long 0x0b0b0b0b\n" /* not code */
        "mov $7, %eax\n"
        "ret\n"
        "1: addq $4, (%rsp)\n"
        "ret");
}
CASE(call_and_pop) {
    for (int i = 0; i < OFTEN; i++) {
        SAME(call_and_pop(), 0);
        CHECK(strcmp(text_behind_a_call(), "inline") == 0);
        SAME(skips_an_argument(), 7);
    }
}

/* --- stacks --- */

ASSEMBLY static long unaligned(long by __attribute__((unused))) {
    asm("mov %rsp, %rdx\n"
        "sub %rdi, %rsp\n"
        "mov $0x1122334455667788, %rax\n"
        "push %rax\n"
        "call 1f\n"
        "pop %rcx\n"
        "sub %rcx, %rax\n"
        "push %rdx\n"
        "push %rax\n"
        "mov $39, %eax\n"
        "syscall\n"
        "pop %rax\n"
        "pop %rsp\n"
        "ret\n"
        "1: pushw $5\n"
        "popw %cx\n"
        "call *2f(%rip)\n"
        "ret\n"
        "3: ret\n"
        ".pushsection .data.rel, \"aw\"\n"
        "2: .quad 3b\n"
        ".popsection");
}
CASE(unaligned_stacks) {
    for (long by = 0; by < 64; by++)
        for (int i = 0; i < 20; i++) SAME(unaligned(by), 0);
}

/* The 128 bytes below the stack belong to the function, across all that is not a call. */
ASSEMBLY static long red_zone(void) {
    asm("mov $16, %ecx\n"
        "1: mov %rcx, %rax\n"
        "imul $0x01010101, %rax, %rax\n"
        "neg %rcx\n"
        "mov %rax, (%rsp, %rcx, 8)\n"
        "neg %rcx\n"
        "lea 2f(%rip), %rdx\n"
        "jmp *%rdx\n"
        "2: loop 1b\n"
        "mov $39, %eax\n"
        "syscall\n"
        "lea 3f(%rip), %rdx\n"
        "mov %rdx, 4f(%rip)\n"
        "jmp *4f(%rip)\n"
        "3: xor %eax, %eax\n"
        "mov $16, %ecx\n"
        "5: neg %rcx\n"
        "add (%rsp, %rcx, 8), %rax\n"
        "neg %rcx\n"
        "dec %ecx\n"
        "jrcxz 6f\n"
        "jmp 5b\n"
        "6: ret\n"
        ".pushsection .data, \"aw\"\n"
        "4: .quad 0\n"
        ".popsection");
}
CASE(red_zone) {
    for (int i = 0; i < OFTEN; i++) SAME(red_zone(), 0x01010101l * 136);
}

/* Nothing may be pushed where there is no stack. */
ASSEMBLY static long without_a_stack(uint64_t nowhere __attribute__((unused))) {
    asm("mov %rsp, %r8\n"
        "mov %rdi, %rsp\n"
        "mov $100, %r9d\n"
        "1: lea 2f(%rip), %rax\n"
        "jmp *%rax\n"
        "2: mov $39, %eax\n"
        "syscall\n"
        "dec %r9d\n"
        "jnz 1b\n"
        "mov $102, %eax\n"
        "syscall\n"
        "cmp %rsp, %rdi\n"
        "jne 3f\n"
        "mov %r8, %rsp\n"
        "xor %eax, %eax\n"
        "ret\n"
        "3: ud2");
}
CASE(no_stack) {
    SAME(without_a_stack(0), 0);
    SAME(without_a_stack(8), 0);
    SAME(without_a_stack(0x8000000000000001), 0);
    void *denied = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAME(without_a_stack((uint64_t)denied + 32768), 0);
    munmap(denied, 65536);
}

/* A stack of which not a byte is to spare: below it nothing may be touched. */
ASSEMBLY static long on_stack(void *stack __attribute__((unused))) {
    asm("mov %rsp, %rdx\n"
        "lea 16(%rdi), %rsp\n"
        "mov $50, %ecx\n"
        "1: push %rdx\n"
        "call 2f\n"
        "pop %rdx\n"
        "loop 1b\n"
        "mov %rdx, %rsp\n"
        "mov %ecx, %eax\n"
        "ret\n"
        "2: mov (%rsp), %rax\n"
        "jmp *3f(%rip)\n"
        "4: ret\n"
        ".pushsection .data.rel, \"aw\"\n"
        "3: .quad 4b\n"
        ".popsection");
}
CASE(full_stack) {
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages, 4096, PROT_NONE);
    SAME(on_stack(pages + 4096), 0);
    static char in_data[64];
    SAME(on_stack(in_data), 0);
    munmap(pages, 8192);
}

ASSEMBLY static long stack_pointer_operands(void) {
    asm("mov %rsp, %rdx\n"
        "push %rsp\n" /* its value before */
        "pop %rax\n"
        "cmp %rax, %rdx\n"
        "jne 9f\n"
        "lea 1f(%rip), %rax\n"
        "push %rax\n"
        "push $77\n"
        "call *8(%rsp)\n" /* the address is taken before the push */
        "popq (%rsp)\n" /* and here after the pop: 77 replaces the address */
        "pop %rax\n"
        "cmp $77, %rax\n"
        "jne 9f\n"
        "lea 2f(%rip), %rax\n"
        "push %rax\n"
        "jmp *(%rsp)\n"
        "ud2\n"
        "2: pushq (%rsp)\n"
        "pop %rcx\n"
        "cmp %rax, %rcx\n"
        "jne 9f\n"
        "mov %rdx, %rsp\n"
        "push %rdx\n"
        "pop %rsp\n"
        "cmp %rsp, %rdx\n"
        "jne 9f\n"
        "enter $32, $0\n"
        "call *3f(%rip)\n"
        "leave\n"
        "cmp %rsp, %rdx\n"
        "jne 9f\n"
        "lea -64(%rsp), %rcx\n"
        "xchg %rsp, %rcx\n"
        "call *3f(%rip)\n"
        "xchg %rsp, %rcx\n"
        "cmp %rsp, %rdx\n"
        "jne 9f\n"
        "lea 1f(%rip), %rax\n"
        "call *%rax\n"
        "xor %eax, %eax\n"
        "ret\n"
        "1: ret\n"
        "9: ud2\n"
        ".pushsection .data.rel, \"aw\"\n"
        "3: .quad 1b\n"
        ".popsection");
}
CASE(stack_pointer_operands) {
    for (int i = 0; i < OFTEN; i++) SAME(stack_pointer_operands(), 0);
}

/* --- jumps --- */

ASSEMBLY static long loops(void) {
    asm("xor %eax, %eax\n"
        "mov $10, %ecx\n"
        "1: inc %eax\n"
        "loop 1b\n" /* 10 */
        "mov $10, %ecx\n"
        "2: inc %eax\n"
        "cmp $15, %eax\n"
        "loopne 2b\n" /* 15 */
        "mov $10, %ecx\n"
        "3: inc %eax\n"
        "cmp $16, %eax\n"
        "loope 3b\n" /* 17 */
        "movabs $0x100000000, %rcx\n"
        "jrcxz 9f\n"
        "jecxz 4f\n"
        "jmp 9f\n"
        "4: mov $3, %ecx\n"
        "5: inc %eax\n"
        "addr32 loop 5b\n" /* 20; the upper half is cleared */
        "jrcxz 6f\n"
        "9: ud2\n"
        "6: ret");
}
CASE(loops) {
    for (int i = 0; i < OFTEN; i++) SAME(loops(), 20);
}

/* The same bytes, read from two places, are two programs. */
ASSEMBLY static long overlapping(long second __attribute__((unused))) {
    asm("test %edi, %edi\n"
        "jnz 1f + 1\n"
        "1: .byte 0xb8, 0x31, 0xc0, 0xeb, 0x01\n" /* mov $0x01ebc031, %eax; or xor; jmp over one */
        "ret\n"
        "mov $9, %eax\n"
        "ret");
}
CASE(overlapping_code) {
    for (int i = 0; i < OFTEN; i++) {
        SAME(overlapping(0), 0x01ebc031);
        SAME(overlapping(1), 9);
    }
}

ASSEMBLY static long prefixed(void) {
    asm("xor %eax, %eax\n"
        "lea 2f(%rip), %rdx\n"
        "call 1f\n"
        "notrack jmp *%rdx\n"
        "ud2\n"
        "1: rep ret\n"
        "2: bnd call 1b\n"
        "stc\n"
        ".byte 0x2e\n" /* hints of old */
        "jnc 9f\n"
        ".byte 0x3e, 0x72, 0x00\n"
        ".byte 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0\n"
        ".byte 0x48, 0x66, 0x90\n" /* a rex that counts for nothing */
        ".byte 0x48, 0xe8\n"
        ".long 1b - . - 4\n"
        ".byte 0x65, 0x65, 0x40, 0x83, 0xc0, 0x05\n"
        "ret\n"
        "9: ud2");
}
CASE(prefixes) {
    for (int i = 0; i < OFTEN; i++) SAME(prefixed(), 5);
}

ASSEMBLY static long straight(void) {
    asm("xor %eax, %eax\n"
        ".rept 20000\n"
        "add $3, %rax\n"
        ".endr\n"
        "ret");
}
ASSEMBLY static long many_branches(uint64_t n __attribute__((unused))) {
    asm("mov %rdi, %rcx\n"
        "xor %eax, %eax\n"
        ".rept 3000\n"
        "rol $1, %rcx\n"
        "jc 1f\n"
        "inc %rax\n"
        "1:\n"
        ".endr\n"
        "ret");
}
CASE(long_blocks) {
    for (int i = 0; i < 10; i++) SAME(straight(), 60000);
    long sum = 0;
    for (uint64_t i = 0; i < 200; i++) sum += many_branches(i * 0x123456789abcdef);
    printf("%ld\n", sum);
}

/* An instruction that lies on two pages, and a block that ends with the last byte of the last one. */
CASE(page_ends) {
    static const uint8_t code[] = {0xb8, 0x78, 0x56, 0x34, 0x12, 0xc3}; /* mov $0x12345678, %eax; ret */
    for (unsigned back = 1; back <= sizeof code; back++) {
        uint8_t *pages = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(pages + 8192, 4096);
        memcpy(pages + 4096 - back, code, sizeof code);
        memcpy(pages + 8192 - sizeof code, code, sizeof code);
        mprotect(pages, 8192, PROT_READ | PROT_EXEC);
        SAME(((int (*)(void))(pages + 4096 - back))(), 0x12345678);
        SAME(((int (*)(void))(pages + 8192 - sizeof code))(), 0x12345678);
        munmap(pages, 8192);
    }
}

/* Near neither to other code nor to anything else: at both ends of the address space and in between. */
CASE(far_places) {
    /* mov 13(%rip), %rax; push %rax; xor %eax, %eax; call *%rsi; pop %rax; add %rdi, %rax; ret; and the data
     * 13 bytes behind the first. */
    static const uint8_t code[] = {0x48, 0x8b, 0x05, 0x0d, 0,    0,    0,    0x50, 0x31,
                                   0xc0, 0xff, 0xd6, 0x58, 0x48, 0x01, 0xf8, 0xc3};
    static const uint64_t places[] = {0x20000,        0x7fff0000,     0x80000000,    0x100000000,
                                      0x123456789000, 0x6fff00000000, 0x7ffe00000000};
    int mapped = 0;
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        uint8_t *page = mmap((void *)places[i], 4096, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (page == MAP_FAILED) continue;
        uint64_t value = 1000 + i;
        memcpy(page, code, sizeof code);
        memcpy(page + 20, &value, 8);
        mprotect(page, 4096, PROT_READ | PROT_EXEC);
        for (long j = 0; j < OFTEN; j++)
            SAME(((long (*)(long, void *))page)(j, (void *)call_and_pop), value + (uint64_t)j);
        mapped++;
    }
    CHECK(mapped >= 3);
}
/* The same among much else that is mapped, by a program that has no descriptors left. */
CASE(far_places_without_descriptors) {
    static const uint8_t code[] = {0xb8, 5, 0, 0, 0, 0xc3}; /* mov $5, %eax; ret */
    enum { AROUND = 64, SIZE = 1 << 16 };
    struct rlimit none = {3, 3};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    for (uintptr_t place = 1ul << 40; place < 6ul << 40; place += 1ul << 40) {
        uint8_t *all[AROUND];
        for (int i = 0; i < AROUND; i++) {
            uint8_t *at = (uint8_t *)(place + ((uintptr_t)i << 25) - (1ul << 30));
            all[i] = mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            CHECK(all[i] == at);
            memset(all[i], i, SIZE);
        }
        uint8_t *page = all[AROUND / 2];
        memcpy(page, code, sizeof code);
        CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
        SAME(((int (*)(void))page)(), 5);
        for (int i = 0; i < AROUND; i++) SAME(all[i][SIZE - 1], i);
    }
    puts("all there");
}

/* --- what can be seen --- */

static uint64_t sum_of(const uint8_t *bytes, size_t count) {
    uint64_t sum = 0;
    while (count--) sum = sum * 31 + *bytes++;
    return sum;
}
/* The code of the program, in memory, is that of its file, before and after it has run. */
CASE(code_bytes_read) {
    FILE *file = fopen("/proc/self/exe", "rb");
    CHECK(file);
    const Elf64_Phdr *headers = (void *)getauxval(AT_PHDR);
    size_t count = getauxval(AT_PHNUM), found = 0;
    const char *base = (const char *)headers - headers[0].p_vaddr;
    if (headers[0].p_type != PT_PHDR) base = NULL;
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < count; i++) {
            if (headers[i].p_type != PT_LOAD || !(headers[i].p_flags & PF_X)) continue;
            uint8_t *original = malloc(headers[i].p_filesz);
            fseek(file, (long)headers[i].p_offset, SEEK_SET);
            CHECK(fread(original, 1, headers[i].p_filesz, file) == headers[i].p_filesz);
            SAME(sum_of((const uint8_t *)base + headers[i].p_vaddr, headers[i].p_filesz),
                 sum_of(original, headers[i].p_filesz));
            free(original);
            found++;
        }
    CHECK(found >= 3);
    static const uint8_t expected[] = {0xe8, 0x00, 0x00, 0x00, 0x00, 0x58};
    call_and_pop();
    CHECK(memcmp((void *)call_and_pop, expected, sizeof expected) == 0);
    fclose(file);
}

static int depth_seen;
static char names_seen[256];
__attribute__((noinline, noclone, used)) void level_three(void) {
    void *frames[64];
    depth_seen = backtrace(frames, 64);
    names_seen[0] = 0;
    for (int i = 0; i < 4 && i < depth_seen; i++) {
        Dl_info info;
        const char *name = dladdr(frames[i], &info) && info.dli_sname ? info.dli_sname : "?";
        strcat(strcat(names_seen, name), " ");
    }
}
__attribute__((noinline, noclone, used)) void level_two(void) { level_three(), (void)*(volatile int *)&depth_seen; }
__attribute__((noinline, noclone, used)) void level_one(void) { level_two(), (void)*(volatile int *)&depth_seen; }
CASE(backtrace) {
    for (int i = 0; i < 100; i++) {
        level_one();
        CHECK(depth_seen >= 5);
        CHECK(strncmp(names_seen, "level_three level_two level_one ", 32) == 0);
    }
    printf("%d: %s\n", depth_seen, names_seen);
}

/* Functions that are not the program's: the clock's, and those that are chosen when it starts. */
CASE(kernel_functions) {
    const Elf64_Ehdr *vdso = (void *)getauxval(AT_SYSINFO_EHDR);
    CHECK(vdso && memcmp(vdso, "\177ELF", 4) == 0);
    const Elf64_Phdr *headers = (void *)((char *)vdso + vdso->e_phoff);
    const char *base = NULL;
    const Elf64_Dyn *dynamic = NULL;
    for (int i = 0; i < vdso->e_phnum; i++) {
        if (headers[i].p_type == PT_LOAD) base = (char *)vdso + headers[i].p_offset - headers[i].p_vaddr;
        if (headers[i].p_type == PT_DYNAMIC) dynamic = (void *)((char *)vdso + headers[i].p_offset);
    }
    CHECK(base && dynamic);
    const Elf64_Sym *symbols = NULL;
    const char *strings = NULL;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_SYMTAB) symbols = (void *)(base + dynamic->d_un.d_ptr);
        if (dynamic->d_tag == DT_STRTAB) strings = base + dynamic->d_un.d_ptr;
    }
    CHECK(symbols && strings);
    int called = 0;
    for (int i = 1; i < 12; i++) {
        const char *name = strings + symbols[i].st_name;
        void *function = (void *)(base + symbols[i].st_value);
        if (strcmp(name, "__vdso_clock_gettime") == 0) {
            struct timespec first, second, third;
            CHECK(((int (*)(int, struct timespec *))function)(CLOCK_MONOTONIC, &first) == 0);
            CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &second) == 0);
            CHECK(((int (*)(int, struct timespec *))function)(CLOCK_MONOTONIC, &third) == 0);
            long one = first.tv_sec * 1000000000l + first.tv_nsec;
            long two = second.tv_sec * 1000000000l + second.tv_nsec;
            CHECK(one <= two && two <= third.tv_sec * 1000000000l + third.tv_nsec);
            called++;
        }
        if (strcmp(name, "__vdso_getcpu") == 0) {
            unsigned processor = ~0u;
            CHECK(((long (*)(unsigned *, unsigned *, void *))function)(&processor, NULL, NULL) == 0);
            CHECK((long)processor < sysconf(_SC_NPROCESSORS_CONF));
            called++;
        }
    }
    printf("%d\n", called);
}

/* A page that can be called but not read, where the kernel has one. */
CASE(vsyscall) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int is_there = 0;
    while (fgets(line, sizeof line, maps)) is_there |= strstr(line, "[vsyscall]") && strstr(line, "x");
    fclose(maps);
    for (int i = 0; is_there && i < 10; i++) {
        time_t before = time(NULL) - 1, now = ((time_t(*)(time_t *))0xffffffffff600400)(NULL);
        CHECK(now >= before && now < before + 100);
    }
    puts(is_there ? "called" : "none");
}

/* --- system calls --- */

ASSEMBLY static long registers_after_a_system_call(void) {
    asm("push %rbx\n"
        "push %rbp\n"
        "push %r12\n"
        "push %r13\n"
        "push %r14\n"
        "push %r15\n"
        "mov $1, %ebx\n mov $2, %edx\n mov $3, %esi\n mov $4, %edi\n mov $5, %ebp\n"
        "mov $8, %r8d\n mov $9, %r9d\n mov $10, %r10d\n mov $12, %r12d\n mov $13, %r13d\n"
        "mov $14, %r14d\n mov $15, %r15d\n"
        "mov $39, %eax\n"
        "cmp %eax, %eax\n"
        "stc\n"
        "syscall\n"
        "1: pushfq\n"
        "xor (%rsp), %r11\n" /* the flags before, and after */
        "test $0xcd5, %r11\n"
        "jnz 9f\n"
        "popfq\n"
        "jnc 9f\n"
        "jnz 9f\n"
        "lea 1b(%rip), %r11\n"
        "cmp %r11, %rcx\n"
        "jne 9f\n"
        "shl $1, %rbx\n add %rdx, %rbx\n add %rsi, %rbx\n add %rdi, %rbx\n add %rbp, %rbx\n"
        "add %r8, %rbx\n add %r9, %rbx\n add %r10, %rbx\n add %r12, %rbx\n add %r13, %rbx\n"
        "add %r14, %rbx\n add %r15, %rbx\n"
        "mov %rbx, %rax\n"
        "pop %r15\n"
        "pop %r14\n"
        "pop %r13\n"
        "pop %r12\n"
        "pop %rbp\n"
        "pop %rbx\n"
        "ret\n"
        "9: ud2");
}
CASE(system_call_registers) {
    for (int i = 0; i < OFTEN; i++)
        SAME(registers_after_a_system_call(), 2 + 2 + 3 + 4 + 5 + 8 + 9 + 10 + 12 + 13 + 14 + 15);
}

/* A system call that is jumped to, that is the target of a loop, and that is called as a function. */
ASSEMBLY static long system_calls_in_odd_places(void) {
    asm("push %rbx\n"
        "xor %ebx, %ebx\n"
        "1: mov $39, %eax\n"
        "cmp $7, %ebx\n"
        "je 3f\n"
        "2: syscall\n"
        "inc %ebx\n"
        "cmp $20, %ebx\n"
        "jl 1b\n"
        "mov $-1, %eax\n"
        "call 4f\n"
        "cmp $-38, %rax\n"
        "jne 9f\n"
        "mov $39, %eax\n"
        "lea 2f(%rip), %rcx\n"
        "push %rcx\n"
        "jmp 4f\n"
        "3: jmp 2b\n"
        "4: syscall\n"
        "ret\n"
        "2: pop %rbx\n"
        "ret\n"
        "9: ud2");
}
CASE(system_calls_in_odd_places) {
    for (int i = 0; i < OFTEN; i++) SAME(system_calls_in_odd_places(), getpid());
    /* The numbers of 32-bit programs, where the kernel knows them. */
    FILE *config = fopen("/proc/sys/abi/vsyscall32", "r");
    if (config) {
        fclose(config);
        long pid;
        asm volatile("int $0x80" : "=a"(pid) : "a"(20) : "r8", "r9", "r10", "r11", "memory");
        SAME(pid, getpid());
    }
}

/* The last instruction before memory that cannot be executed, as in code that is made. */
CASE(system_call_at_the_end_of_a_page) {
    static const uint8_t code[] = {0xb8, 39, 0, 0, 0, 0xeb, 0x01, 0xc3, 0x0f, 0x05, 0xeb, 0xfb};
    uint8_t *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(pages + 4096 - sizeof code, code, sizeof code);
    mprotect(pages, 4096, PROT_READ | PROT_EXEC);
    mprotect(pages + 4096, 4096, PROT_NONE);
    for (int i = 0; i < OFTEN; i++)
        SAME(((int (*)(void))(pages + 4096 - sizeof code))(), getpid());
}
