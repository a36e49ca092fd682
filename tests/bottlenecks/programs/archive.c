// Unpacks an archive, member by member: each into a mapping of its own, by small reads.
#include "program.h"

enum { MEMBER = 1 << 20, BLOCK = 1024 };

__attribute__((noinline)) static unsigned char *new_member(void) {
    void *member = mmap(NULL, MEMBER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (member == MAP_FAILED)
        abort();
    return member;
}

__attribute__((noinline)) static void clear_member(unsigned char *member) {
    for (size_t place = 0; place < MEMBER; place += 4096)
        member[place] = 0;
}

__attribute__((noinline)) static void read_member(int file, unsigned char *member) {
    for (off_t place = 0; place < MEMBER; place += BLOCK)
        if (pread(file, member + place, BLOCK, place) != BLOCK)
            abort();
}

int main(int argc, char **argv) {
    (void)argc;
    count_in(argv[1]);
    use_small_pages();
    int file = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < MEMBER / 8; i++) {
        uint64_t word = (uint64_t)i * 2654435761u;
        if (pwrite(file, &word, 8, (off_t)i * 8) != 8)
            abort();
    }
    for (;;) {
        unsigned char *member = new_member();
        clear_member(member);
        read_member(file, member);
        munmap(member, MEMBER);
        count(1);
    }
}
