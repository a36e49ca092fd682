// A program under seccomp: in strict mode, or under a filter that answers mmap with PROT_EXEC by an
// error or by death. It works until its input ends and then shows that it is unharmed.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char ready[] = "ready\n";
static const char unharmed[] = "unharmed\n";

static int forbid_executable_mmap(unsigned action) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int confine(const char *mode) {
    if (!strcmp(mode, "strict")) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    if (!strcmp(mode, "errno")) return forbid_executable_mmap(SECCOMP_RET_ERRNO | EPERM);
    if (!strcmp(mode, "kill")) return forbid_executable_mmap(SECCOMP_RET_KILL_PROCESS);
    if (!strcmp(mode, "allow")) return forbid_executable_mmap(SECCOMP_RET_ALLOW);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 2 || confine(argv[1])) {
        perror("usage: seccomp strict|errno|kill|allow");
        return 1;
    }
    char byte;
    int fine = write(1, ready, sizeof ready - 1) > 0 && read(0, &byte, 1) == 0 &&
               write(1, unharmed, sizeof unharmed - 1) > 0;
    // The strict mode allows this way to exit, and no other.
    syscall(SYS_exit, fine ? 7 : 1);
}
