/* Code that is changed by what the kernel does: by its writes, and by what is mapped where. */
#define _GNU_SOURCE
#include "made.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <setjmp.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

/* --- writes of the kernel --- */

static const uint8_t two[] = {0xb8, 2, 0, 0, 0, 0xc3}, three[] = {0xb8, 3, 0, 0, 0, 0xc3};

static uint8_t *first_code(void) {
    uint8_t *code = pages(1, RWX);
    put_constant(code, 1);
    for (int i = 0; i < 10; i++) call(code);
    say("%ld", call(code));
    return code;
}
SMC(by_read, "1 2 3", "1 1 1") {
    uint8_t *code = first_code();
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], two, 6) == 6 && read(ends[0], code, 6) == 6);
    say("%ld", call(code));
    /* Two pieces into two places, with one call. */
    struct iovec pieces[] = {{code + 4, 2}, {code, 4}};
    uint8_t mixed[] = {three[4], three[5], three[0], three[1], three[2], three[3]};
    CHECK(write(ends[1], mixed, 6) == 6 && readv(ends[0], pieces, 2) == 6);
    say("%ld", call(code));
}
SMC(by_recv, "1 2 3", "1 1 1") {
    uint8_t *code = first_code();
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    CHECK(send(ends[1], two, 6, 0) == 6 && recv(ends[0], code, 6, 0) == 6);
    say("%ld", call(code));
    struct iovec piece = {code, 6};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    CHECK(send(ends[1], three, 6, 0) == 6 && recvmsg(ends[0], &message, 0) == 6);
    say("%ld", call(code));
}
SMC(by_pread, "1 2 3", "1 1 1") {
    uint8_t *code = first_code();
    FILE *file = tmpfile();
    CHECK(write(fileno(file), two, 6) == 6 && write(fileno(file), three, 6) == 6);
    CHECK(pread(fileno(file), code, 6, 0) == 6);
    say("%ld", call(code));
    CHECK(pread(fileno(file), code, 6, 6) == 6);
    say("%ld", call(code));
}
SMC(by_process_vm_writev, "1 2", "1 1") {
    uint8_t *code = first_code();
    struct iovec from = {(void *)two, 6}, to = {code, 6};
    CHECK(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == 6);
    say("%ld", call(code));
}
SMC(by_proc_mem, "1 2 3", "1 1 1") {
    uint8_t *code = first_code();
    int memory = open("/proc/self/mem", O_RDWR);
    CHECK(memory >= 0 && pwrite(memory, two, 6, (off_t)code) == 6);
    say("%ld", call(code));
    /* It may even write where the program may not. */
    mprotect(code, PAGE, RX);
    call(code);
    CHECK(pwrite(memory, three, 6, (off_t)code) == 6);
    say("%ld", call(code));
}
SMC(by_another_process, "1 2", "1 1") {
    uint8_t *code = first_code();
    pid_t child = fork();
    if (child == 0) {
        struct iovec from = {(void *)two, 6}, to = {code, 6};
        _exit(process_vm_writev(getppid(), &from, 1, &to, 1, 0) == 6 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    say("%ld", call(code));
}
/* A read that was asked for through a ring: no call has the address among its arguments. */
SMC(by_a_ring, "1 2", "1 1") {
    uint8_t *code = first_code();
    FILE *file = tmpfile();
    CHECK(write(fileno(file), two, 6) == 6);
    struct io_uring_params how = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 2, &how);
    if (ring < 0) { /* where there are none */
        CHECK(pread(fileno(file), code, 6, 0) == 6);
    } else {
        size_t size = how.sq_off.array + how.sq_entries * sizeof(unsigned);
        uint8_t *queue = mmap(NULL, size, RW, MAP_SHARED, ring, IORING_OFF_SQ_RING);
        struct io_uring_sqe *entries =
            mmap(NULL, how.sq_entries * sizeof *entries, RW, MAP_SHARED, ring, IORING_OFF_SQES);
        CHECK(queue != MAP_FAILED && entries != MAP_FAILED);
        struct io_uring_sqe reads = {.opcode = IORING_OP_READ, .fd = fileno(file), .addr = (uint64_t)code, .len = 6};
        entries[0] = reads;
        *(unsigned *)(queue + how.sq_off.array) = 0;
        __atomic_store_n((unsigned *)(queue + how.sq_off.tail), 1, __ATOMIC_RELEASE);
        CHECK(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    }
    say("%ld", call(code));
}
/* Calls that write a little, where there is code on the same page: they do not fail for that. */
SMC(results_beside_code, "1 0 0 0 0 0 0 1 2", "1 0 0 0 0 0 0 1 1") {
    uint8_t *code = first_code();
    void *data = code + 2048;
    say("%ld", syscall(SYS_clock_gettime, CLOCK_MONOTONIC, data));
    say("%d", uname(data));
    say("%d", stat("/", data));
    say("%d", pipe(data));
    say("%d", sigprocmask(SIG_BLOCK, NULL, data));
    say("%d", sigaction(SIGUSR1, NULL, data));
    CHECK(getcwd(data, 1000) == data);
    call(code);
    pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK(waitpid(child, data, 0) == child);
    say("%ld", call(code));
    code[1] = 2;
    say("%ld", call(code));
}

/* --- protections --- */

SMC(flipped, "1 4950", "1 100") {
    uint8_t *code = pages(1, RW);
    put_constant(code, 1);
    mprotect(code, PAGE, RX);
    say("%ld", call(code));
    long sum = 0;
    for (uint32_t i = 0; i < 100; i++) {
        mprotect(code, PAGE, RW);
        put_constant(code, i);
        mprotect(code, PAGE, RX);
        sum += call(code);
    }
    say("%ld", sum);
}
/* By keys, not by calls: the page itself stays writable and executable. */
SMC(flipped_by_keys, "1 4950", "1 100") {
    uint8_t *code = pages(1, RWX);
    put_constant(code, 1);
    int key = pkey_alloc(0, 0);
    if (key > 0) CHECK(pkey_mprotect(code, PAGE, RWX, key) == 0);
    say("%ld", call(code));
    long sum = 0;
    for (uint32_t i = 0; i < 100; i++) {
        if (key > 0) pkey_set(key, 0);
        put_constant(code, i);
        if (key > 0) pkey_set(key, PKEY_DISABLE_WRITE);
        sum += call(code);
    }
    say("%ld", sum);
}
/* What the program asked for is what it is told. */
static void say_protection_by(const void *address, FILE *maps) {
    char line[512], permissions[8];
    unsigned long start, end;
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %4s", &start, &end, permissions) == 3 && (unsigned long)address >= start &&
            (unsigned long)address < end)
            say("%s", permissions);
    fclose(maps);
}
static void say_protection(const void *address) {
    say_protection_by(address, fopen("/proc/self/maps", "r"));
}
SMC(protection_as_asked, "rwxp rwxp r-xp 2", "rwxp rwxp r-xp 1") {
    uint8_t *code = pages(1, RWX);
    say_protection(code);
    put_constant(code, 1);
    call(code);
    say_protection(code);
    put_constant(code, 2);
    mprotect(code, PAGE, RX);
    say_protection(code);
    say("%ld", call(code));
}
/* By other names, and with code that is executed between opening and reading. */
SMC(protection_by_other_names, "rwxp rwxp rwxp rwxp 2", "rwxp rwxp rwxp rwxp 1") {
    uint8_t *code = pages(1, RWX);
    put_constant(code, 1);
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/task/%d/smaps", getpid(), getpid());
    int folder = open("/proc/thread-self", O_RDONLY | O_DIRECTORY);
    FILE *files[] = {fopen(name, "r"), fdopen(openat(folder, "maps", O_RDONLY), "r"),
                     fopen("/proc/thread-self/../../maps", "r"), fopen("/proc/self/maps", "r")};
    for (int i = 0; i < 4; i++) {
        call(code);
        say_protection_by(code, files[i]);
    }
    close(folder);
    put_constant(code, 2);
    say("%ld", call(code));
}

static sigjmp_buf place;
static siginfo_t info;
static void leave(int number, siginfo_t *given, void *context) {
    (void)context;
    info = *given;
    siglongjmp(place, number);
}
static void catch_faults(void) {
    struct sigaction action = {.sa_sigaction = leave, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGILL, &action, NULL);
}
/* What comes of a call: its result, or the fault, and whether its address is right. */
static void say_call(const uint8_t *code) {
    int number = sigsetjmp(place, 1);
    if (number == 0)
        say("%ld", call(code));
    else
        say("%s%s", number == SIGSEGV ? "segv" : number == SIGBUS ? "bus" : "ill",
            info.si_addr == code ? "" : " elsewhere");
}
SMC(execution_denied, "1 segv 1", "1 1 1") {
    catch_faults();
    uint8_t *code = first_code();
    mprotect(code, PAGE, RW);
    say_call(code);
    mprotect(code, PAGE, RX);
    say_call(code);
}
SMC(everything_denied, "1 segv 2", "1 1 1") {
    catch_faults();
    uint8_t *code = first_code();
    mprotect(code, PAGE, PROT_NONE);
    say_call(code);
    mprotect(code, PAGE, RW);
    put_constant(code, 2);
    mprotect(code, PAGE, RX);
    say_call(code);
}
/* The program's own protection is none of the translator's: the program gets the fault. */
SMC(writing_denied, "1 fault 1 2", "1 fault 1 1") {
    catch_faults();
    uint8_t *code = first_code();
    mprotect(code, PAGE, RX);
    call(code);
    if (sigsetjmp(place, 1) == 0)
        *(volatile uint8_t *)(code + 1) = 2;
    else
        say("%s", info.si_addr == code + 1 && info.si_code == SEGV_ACCERR ? "fault" : "another fault");
    say("%ld", call(code));
    mprotect(code, PAGE, RWX);
    *(volatile uint8_t *)(code + 1) = 2;
    say("%ld", call(code));
}

/* --- what is mapped --- */

static int file_with(uint32_t first, uint32_t second) {
    int file = memfd_create("code", 0);
    CHECK(file >= 0 && ftruncate(file, 2 * PAGE) == 0);
    uint8_t bytes[CONSTANT];
    put_constant(bytes, first);
    CHECK(pwrite(file, bytes, CONSTANT, 0) == CONSTANT);
    put_constant(bytes, second);
    CHECK(pwrite(file, bytes, CONSTANT, PAGE) == CONSTANT);
    return file;
}
SMC(double_mapping, "1 2 4950", "1 1 100") {
    int file = file_with(1, 0);
    uint8_t *writable = mmap(NULL, PAGE, RW, MAP_SHARED, file, 0);
    uint8_t *code = mmap(NULL, PAGE, RX, MAP_SHARED, file, 0);
    CHECK(writable != MAP_FAILED && code != MAP_FAILED);
    say("%ld", call(code));
    put_constant(writable, 2);
    serialize();
    say("%ld", call(code));
    long sum = 0;
    for (uint32_t i = 0; i < 100; i++) {
        put_constant(writable, i);
        serialize();
        sum += call(code);
    }
    say("%ld", sum);
}
/* The second mapping comes after the code has run. */
SMC(second_mapping_later, "1 2 3", "1 1 1") {
    int file = file_with(1, 0);
    uint8_t *code = mmap(NULL, PAGE, RX, MAP_SHARED, file, 0);
    say("%ld", call(code));
    uint8_t *writable = mmap(NULL, PAGE, RW, MAP_SHARED, file, 0);
    put_constant(writable, 2);
    serialize();
    say("%ld", call(code));
    munmap(writable, PAGE);
    /* And a third, by duplication. */
    uint8_t *another = mremap(code, 0, PAGE, MREMAP_MAYMOVE);
    CHECK(another != MAP_FAILED && mprotect(another, PAGE, RW) == 0);
    put_constant(another, 3);
    serialize();
    say("%ld", call(code));
}
SMC(shared_segment, "1 2 3", "1 1 1") {
    int segment = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0700);
    uint8_t *writable = shmat(segment, NULL, 0), *code = shmat(segment, NULL, SHM_RDONLY | SHM_EXEC);
    shmctl(segment, IPC_RMID, NULL);
    CHECK(writable != (void *)-1 && code != (void *)-1);
    for (uint32_t i = 1; i <= 3; i++) {
        put_constant(writable, i);
        serialize();
        say("%ld", call(code));
    }
}
SMC(shared_with_a_child, "1 2", "1 1") {
    uint8_t *code = mmap(NULL, PAGE, RWX, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    put_constant(code, 1);
    say("%ld", call(code));
    pid_t child = fork();
    if (child == 0) {
        put_constant(code, 2);
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    serialize();
    say("%ld", call(code));
}
SMC(file_rewritten, "1 2 3", "1 1 1") {
    int file = file_with(1, 0);
    uint8_t *code = mmap(NULL, PAGE, RX, MAP_SHARED, file, 0);
    say("%ld", call(code));
    CHECK(pwrite(file, two, 6, 0) == 6);
    serialize();
    say("%ld", call(code));
    /* By another who has opened it. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int other = open(path, O_RDWR);
    CHECK(other >= 0 && pwrite(other, three, 6, 0) == 6);
    serialize();
    say("%ld", call(code));
}
/* From one file to another, past all memory of the program. */
SMC(file_copied_into, "1 2 3", "1 1 1") {
    int file = file_with(1, 0), from = file_with(2, 3);
    uint8_t *code = mmap(NULL, PAGE, RX, MAP_SHARED, file, 0);
    say("%ld", call(code));
    CHECK(lseek(from, 0, SEEK_SET) == 0 && sendfile(file, from, NULL, CONSTANT) == CONSTANT);
    serialize();
    say("%ld", call(code));
    off_t place_in = PAGE, place_out = 0;
    CHECK(copy_file_range(from, &place_in, file, &place_out, CONSTANT, 0) == CONSTANT);
    serialize();
    say("%ld", call(code));
}
/* A private mapping shows what is written to the file until it is written to itself. */
SMC(private_file_rewritten, "1 2", "1 1") {
    int file = file_with(1, 0);
    uint8_t *code = mmap(NULL, PAGE, RX, MAP_PRIVATE, file, 0);
    say("%ld", call(code));
    CHECK(pwrite(file, two, 6, 0) == 6);
    serialize();
    say("%ld", call(code));
}
SMC(file_truncated, "1 bus 2", "1 1 1") {
    catch_faults();
    int file = file_with(1, 0);
    uint8_t *code = mmap(NULL, PAGE, RX, MAP_SHARED, file, 0);
    say_call(code);
    CHECK(ftruncate(file, 0) == 0);
    say_call(code);
    CHECK(ftruncate(file, PAGE) == 0 && pwrite(file, two, 6, 0) == 6);
    say_call(code);
}
SMC(moved_over, "1 2", "1 1") {
    uint8_t *code = first_code(), *other = pages(1, RWX);
    put_constant(other, 2);
    CHECK(mremap(other, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, code) == code);
    say("%ld", call(code));
}
SMC(moved_away, "1 1 segv 2", "1 1 1 1 | 1 1 segv 1") {
    catch_faults();
    uint8_t *code = first_code(), *there = pages(1, PROT_NONE);
    CHECK(mremap(code, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there);
    say_call(there);
    say_call(code);
    there[1] = 2;
    say_call(there);
}
SMC(mapped_anew, "1 5 6", "1 1 1") {
    uint8_t *code = first_code();
    for (uint32_t i = 5; i < 7; i++) {
        CHECK(munmap(code, PAGE) == 0);
        CHECK(mmap(code, PAGE, RWX, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == code);
        put_constant(code, i);
        say("%ld", call(code));
    }
}
SMC(mapped_over, "1 5 6", "1 1 1") {
    uint8_t *code = first_code();
    int file = file_with(5, 6);
    CHECK(mmap(code, PAGE, RX, MAP_PRIVATE | MAP_FIXED, file, 0) == code);
    say("%ld", call(code));
    CHECK(mmap(code, PAGE, RX, MAP_SHARED | MAP_FIXED, file, PAGE) == code);
    say("%ld", call(code));
}
SMC(unmapped, "1 segv", "1 1") {
    catch_faults();
    uint8_t *code = first_code();
    munmap(code, PAGE);
    say_call(code);
}
/* Zeroes are left: an instruction that writes to where rax points. */
static void say_zeroes(const uint8_t *code) {
    if (sigsetjmp(place, 1) == 0) {
        long result;
        asm volatile("mov $64, %%eax\n call *%1" : "=&a"(result) : "r"(code) : "rcx", "rdx", "memory", "cc");
        say("%ld", result);
    } else
        say("segv%s", info.si_addr == (void *)64 ? "" : " elsewhere");
}
SMC(forgotten, "1 segv 2", "1 1 1") {
    catch_faults();
    uint8_t *code = first_code();
    CHECK(madvise(code, PAGE, MADV_DONTNEED) == 0);
    say_zeroes(code);
    put_constant(code, 2);
    say_call(code);
}
/* The same for a file in which a hole is made. */
SMC(hole_made, "1 segv", "1 1") {
    catch_faults();
    int file = file_with(1, 0);
    uint8_t *code = mmap(NULL, PAGE, RX, MAP_SHARED, file, 0);
    say("%ld", call(code));
    CHECK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0);
    say_zeroes(code);
}
/* The pages of a file come back as they were in the file. */
SMC(changes_forgotten, "1 9 1", "1 1 1") {
    int file = file_with(1, 0);
    uint8_t *code = mmap(NULL, PAGE, RWX, MAP_PRIVATE, file, 0);
    say("%ld", call(code));
    put_constant(code, 9);
    say("%ld", call(code));
    CHECK(madvise(code, PAGE, MADV_DONTNEED) == 0);
    say("%ld", call(code));
}
SMC(child_changes, "1 2 1", "1 1 1") {
    uint8_t *code = first_code();
    pid_t child = fork();
    if (child == 0) {
        put_constant(code, 2);
        _exit((int)call(code));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say("%d %ld", WEXITSTATUS(status), call(code));
}
SMC(parent_changes, "1 1 2", "1 1 1") {
    uint8_t *code = first_code();
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        char go;
        CHECK(read(ends[0], &go, 1) == 1);
        _exit((int)call(code));
    }
    put_constant(code, 2);
    CHECK(write(ends[1], "x", 1) == 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say("%d %ld", WEXITSTATUS(status), call(code));
}
/* The heap, made executable: brk gives it back and takes it again. */
SMC(heap_anew, "1 0 2", "1 0 1") {
    uint8_t *end = sbrk(0);
    uint8_t *code = (uint8_t *)(((uint64_t)end + PAGE - 1) & ~(PAGE - 1));
    CHECK(brk(code + PAGE) == 0 && mprotect(code, PAGE, RWX) == 0);
    put_constant(code, 1);
    say("%ld", call(code));
    CHECK(brk(code) == 0 && brk(code + PAGE) == 0);
    say("%d", code[0]);
    CHECK(mprotect(code, PAGE, RWX) == 0);
    put_constant(code, 2);
    say("%ld", call(code));
}
/* One library goes, another comes, often to the same place. */
SMC(library_replaced, "1 2 1 2", "1 1 1 1") {
    char path[PATH_MAX] = "";
    CHECK(readlink("/proc/self/exe", path, sizeof path - 8) > 0);
    size_t length = strlen(path);
    for (int i = 0; i < 4; i++) {
        strcpy(path + length, i % 2 ? ".2.so" : ".1.so");
        void *library = dlopen(path, RTLD_NOW);
        if (!library) wrong("%s", dlerror());
        long (*value)(void) = (long (*)(void))dlsym(library, "value");
        CHECK(value);
        for (int j = 0; j < 10; j++) value();
        say("%ld", value());
        CHECK(dlclose(library) == 0);
    }
}
/* What else is mapped does not change what may be written. */
SMC(segment_elsewhere, "1 5", "1 1") {
    uint8_t *code = pages(1, RWX);
    put_constant(code, 1);
    say("%ld", call(code));
    int id = shmget(IPC_PRIVATE, 4096, 0600);
    void *segment = shmat(id, NULL, 0);
    CHECK(segment != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
    put_constant(code, 5);
    say("%ld", call(code));
    CHECK(shmdt(segment) == 0);
}
/* A handler's frame is written over code. */
static volatile sig_atomic_t came;
static void comes(int number) {
    came = number;
}
SMC(frame_over_code, "1 10 5", "1 10 1") {
    uint8_t *code = pages(16, RWX);
    for (int i = 0; i < 16; i++) put_constant(code + 4096 * i, 1);
    long sum = 0;
    for (int i = 0; i < 16; i++) sum += call(code + 4096 * i);
    say("%ld", sum / 16);
    stack_t stack = {.ss_sp = code, .ss_size = 16 * 4096};
    struct sigaction action = {.sa_handler = comes, .sa_flags = SA_ONSTACK};
    CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0);
    say("%d", (int)came);
    put_constant(code + 15 * 4096, 5);
    say("%ld", call(code + 15 * 4096));
}

/* System calls that find addresses of code in registers which mean nothing to them. */
CASE(code_in_spare_registers) {
    uint8_t *code = pages(1, RWX);
    put_constant(code, 1);
    long sum = 0;
    for (int i = 0; i < 1000; i++) {
        syscall(SYS_getpid, code, code, code, code, code, code);
        sum += call(code);
    }
    for (int i = 0; i < 1000000; i++) sum += call(code);
    printf("%ld\n", sum);
}
