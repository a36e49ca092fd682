/* Writes into a pipe that nobody reads, from functions that go by their frame pointers. */
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) static long fill(int end)
{
    static char bytes[1 << 20];
    return write(end, bytes, sizeof bytes);
}

__attribute__((noinline)) static long begin(int end)
{
    volatile long written = fill(end);
    return written;
}

int main(void)
{
    int ends[2];
    if (pipe(ends))
        return 1;
    puts("ready");
    fflush(stdout);
    return begin(ends[1]) < 0;
}
