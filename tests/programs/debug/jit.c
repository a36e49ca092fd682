// Makes functions, tells debuggers of them as GDB's JIT interface has it, calls and changes them.
#define _GNU_SOURCE
#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct jit_code_entry {
    struct jit_code_entry *next_entry, *prev_entry;
    const char *symfile_addr;
    uint64_t symfile_size;
};

// The names and the layout are GDB's: "Declarations" in its chapter on JIT compilation.
struct jit_descriptor {
    uint32_t version, action_flag;
    struct jit_code_entry *relevant_entry, *first_entry;
} __jit_debug_descriptor = {1, 0, NULL, NULL};

void __attribute__((noinline)) __jit_debug_register_code(void) {
    __asm__ volatile("");
}

volatile long scratch; // set
long total;            // watch

int twice(int number) { // call
    return number * 2;
}

enum { TEXT = 1, SYMBOLS, STRINGS, NAMES, SECTIONS };

static const char section_names[] = "\0.text\0.symtab\0.strtab\0.shstrtab";

struct Image {
    Elf64_Ehdr header;
    Elf64_Shdr sections[SECTIONS];
    Elf64_Sym symbols[2];
    char names[sizeof section_names];
    char strings[32];
};

static Elf64_Shdr section(int name, int type, size_t at, size_t size, size_t each) {
    return (Elf64_Shdr){.sh_name = (Elf64_Word)name,
                        .sh_type = (Elf64_Word)type,
                        .sh_offset = at,
                        .sh_size = size,
                        .sh_addralign = 1,
                        .sh_entsize = each};
}

// An ELF file that says nothing but that a function of this name is at this place.
static struct Image *describe(const char *name, void *code, size_t size) {
    struct Image *image = calloc(1, sizeof *image);
    memcpy(image->header.e_ident, ELFMAG "\2\1\1", 7);
    image->header.e_type = ET_EXEC;
    image->header.e_machine = EM_X86_64;
    image->header.e_version = EV_CURRENT;
    image->header.e_shoff = offsetof(struct Image, sections);
    image->header.e_ehsize = sizeof image->header;
    image->header.e_shentsize = sizeof *image->sections;
    image->header.e_shnum = SECTIONS;
    image->header.e_shstrndx = NAMES;
    memcpy(image->names, section_names, sizeof section_names);
    strncpy(image->strings + 1, name, sizeof image->strings - 2);
    Elf64_Shdr *sections = image->sections;
    sections[TEXT] = section(1, SHT_NOBITS, 0, size, 0);
    sections[TEXT].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
    sections[TEXT].sh_addr = (uintptr_t)code;
    sections[SYMBOLS] = section(7, SHT_SYMTAB, offsetof(struct Image, symbols),
                                sizeof image->symbols, sizeof *image->symbols);
    sections[SYMBOLS].sh_link = STRINGS;
    sections[SYMBOLS].sh_info = 1;
    sections[STRINGS] =
        section(15, SHT_STRTAB, offsetof(struct Image, strings), sizeof image->strings, 0);
    sections[NAMES] =
        section(23, SHT_STRTAB, offsetof(struct Image, names), sizeof image->names, 0);
    image->symbols[1] = (Elf64_Sym){.st_name = 1,
                                    .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                    .st_shndx = TEXT,
                                    .st_value = (uintptr_t)code,
                                    .st_size = size};
    return image;
}

static struct jit_code_entry *announce(const char *name, void *code, size_t size) {
    struct jit_code_entry *entry = calloc(1, sizeof *entry);
    entry->symfile_addr = (const char *)describe(name, code, size);
    entry->symfile_size = sizeof(struct Image);
    entry->next_entry = __jit_debug_descriptor.first_entry;
    if (entry->next_entry) entry->next_entry->prev_entry = entry;
    __jit_debug_descriptor.first_entry = entry;
    __jit_debug_descriptor.relevant_entry = entry;
    __jit_debug_descriptor.action_flag = 1;
    __jit_debug_register_code();
    return entry;
}

static void withdraw(struct jit_code_entry *entry) {
    if (entry->prev_entry)
        entry->prev_entry->next_entry = entry->next_entry;
    else
        __jit_debug_descriptor.first_entry = entry->next_entry;
    if (entry->next_entry) entry->next_entry->prev_entry = entry->prev_entry;
    __jit_debug_descriptor.relevant_entry = entry;
    __jit_debug_descriptor.action_flag = 2;
    __jit_debug_register_code();
    free((void *)entry->symfile_addr);
    free(entry);
}

// push %rbp; mov %rsp, %rbp; lea (%rdi,%rdi), %eax; add $VALUE, %eax; pop %rbp; ret
static const uint8_t made[] = {0x55, 0x48, 0x89, 0xe5, 0x8d, 0x04, 0x3f,
                               0x05, 0,    0,    0,    0,    0x5d, 0xc3};
enum { VALUE = 8 };

static void put(uint8_t *code, int value) {
    memcpy(code, made, sizeof made);
    memcpy(code + VALUE, &value, sizeof value);
}

static int call(const void *code, int number) {
    return ((int (*)(int))code)(number);
}

static void do_round(uint8_t *code, int round) {
    put(code, round);
    struct jit_code_entry *entry = announce("made_function", code, sizeof made);
    for (int i = 0; i < 4; i++) {
        total += call(code, i);
        put(code, round + i); // other code at the same place
    }
    withdraw(entry);
    total += call(code, twice(round));
    scratch += round;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    uint8_t *code = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (int round = 0; round < rounds; round++) {
        do_round(code, round);
    }
    printf("%ld\n", total);
    return 0;
}
