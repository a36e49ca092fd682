// Memory that is filled, copied and searched by one repeated instruction each, for watchpoints within.
char filled[256], source[256];

void __attribute__((noinline)) fill(char *to, long count, int value) {
    __asm__ volatile("fills: rep stosb" : "+D"(to), "+c"(count) : "a"(value) : "memory");
}

void __attribute__((noinline)) copy_backwards(char *to, const char *from, long words) {
    to += (words - 1) * 4;
    from += (words - 1) * 4;
    __asm__ volatile("std\n copies: rep movsl\n cld" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
}

long __attribute__((noinline)) find(const char *in, long count, int value) {
    __asm__ volatile("finds: repne scasb" : "+D"(in), "+c"(count) : "a"(value) : "memory", "cc");
    return count;
}

void __attribute__((noinline)) found(long left) {
    __asm__ volatile("" : : "r"(left));
}

int main(void) {
    fill(filled, sizeof filled, 1);
    fill(filled, sizeof filled, 1);
    for (unsigned at = 0; at < sizeof source; at++) source[at] = (char)at;
    copy_backwards(filled, source, sizeof filled / 4);
    found(find(filled, sizeof filled, 100));
    return 0;
}
