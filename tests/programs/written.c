// Writes ten bytes a hundred times when its input begins, and ends with it.
#include <fcntl.h>
#include <unistd.h>

int main(void) {
    char bytes[10] = "";
    int nowhere = open("/dev/null", O_WRONLY);
    if (write(1, "ready\n", 6) != 6 || read(0, bytes, 1) < 0) return 1;
    for (int i = 0; i < 100; i++)
        if (write(nowhere, bytes, sizeof bytes) != sizeof bytes) return 1;
    return write(1, "done\n", 5) != 5;
}
