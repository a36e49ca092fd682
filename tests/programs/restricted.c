// Gives something up that weft may need of it, and waits.
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    (void)argc;
    struct rlimit few;
    getrlimit(RLIMIT_NOFILE, &few);
    few.rlim_cur = 3;
    int result = -1;
    // PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN
    if (!strcmp(argv[1], "mdwe")) result = prctl(65, 1, 0, 0, 0);
    // ARCH_SET_CPUID
    if (!strcmp(argv[1], "cpuid")) result = (int)syscall(SYS_arch_prctl, 0x1012, 0);
    if (!strcmp(argv[1], "descriptors")) result = setrlimit(RLIMIT_NOFILE, &few);
    puts(result ? "cannot" : "ready");
    fflush(stdout);
    char byte;
    return read(0, &byte, 1) < 0;
}
