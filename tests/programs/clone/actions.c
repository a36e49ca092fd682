/* Signals, one at a time: what sigaction, masks, stacks and the calls that wait for them promise. */
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

#ifndef SS_AUTODISARM /* linux/signal.h has it, and quarrels with signal.h */
#define SS_AUTODISARM (1u << 31)
#endif

static volatile int handled, nested, deepest;
static siginfo_t info;
static volatile int *volatile nowhere = NULL;

static sigset_t only(int number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    return set;
}
static int is_blocked(int number) {
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    return sigismember(&set, number);
}
static int is_pending(int number) {
    sigset_t set;
    sigpending(&set);
    return sigismember(&set, number);
}
static void count(int number) {
    (void)number;
    handled++;
}
static void install(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(number, &action, NULL) == 0);
}
static void install_full(int number, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    CHECK(sigaction(number, &action, NULL) == 0);
}
static void tell_self(int number) { CHECK(syscall(SYS_tgkill, getpid(), gettid(), number) == 0); }

/* --- sigaction --- */

static void keep_info(int number, siginfo_t *given, void *context) {
    CHECK(number == given->si_signo && context);
    info = *given;
    handled++;
}
CASE(information) {
    install_full(SIGUSR1, keep_info, 0);
    kill(getpid(), SIGUSR1);
    CHECK(handled == 1 && info.si_code == SI_USER && info.si_pid == getpid() && info.si_uid == getuid());
    tell_self(SIGUSR1);
    CHECK(handled == 2 && info.si_code == SI_TKILL && info.si_pid == getpid());
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 4711});
    CHECK(handled == 3 && info.si_code == SI_QUEUE && info.si_value.sival_int == 4711);
    raise(SIGUSR1);
    CHECK(handled == 4);
    for (int i = 0; i < 10000; i++) raise(SIGUSR1);
    printf("%d\n", handled);
}

static void every(int number, siginfo_t *given, void *context) {
    (void)context;
    if (number == given->si_signo) handled++;
}
CASE(every_number) {
    for (int number = 1; number <= SIGRTMAX; number++) {
        if (number == SIGKILL || number == SIGSTOP || number == 32 || number == 33) continue;
        install_full(number, every, 0);
        int before = handled;
        tell_self(number);
        if (handled != before + 1) wrong("signal %d did not come", number);
    }
    struct sigaction action = {.sa_handler = count};
    CHECK(sigaction(SIGKILL, &action, NULL) == -1 && errno == EINVAL);
    CHECK(sigaction(SIGSTOP, &action, NULL) == -1 && errno == EINVAL);
    CHECK(sigaction(65, &action, NULL) == -1 && errno == EINVAL);
    printf("%d\n", handled);
}

/* What was installed is what is read back. */
CASE(read_back) {
    struct sigaction action = {.sa_sigaction = keep_info, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    action.sa_mask = only(SIGUSR2);
    for (int i = 0; i < 50; i++) {
        CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
        struct sigaction old;
        CHECK(sigaction(SIGUSR1, NULL, &old) == 0);
        CHECK(old.sa_sigaction == keep_info);
        SAME(old.sa_flags & ~0x04000000, SA_SIGINFO | SA_RESTART | SA_ONSTACK);
        CHECK(sigismember(&old.sa_mask, SIGUSR2) && !sigismember(&old.sa_mask, SIGUSR1));
        action.sa_flags ^= 0x400; /* of no meaning: so programs find out what a kernel knows */
        struct sigaction usual = {.sa_handler = SIG_DFL};
        CHECK(sigaction(SIGUSR1, &usual, &old) == 0 && old.sa_sigaction == keep_info);
        CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
        /* Faults and what else a tool may want for itself. */
        for (int number = 1; number < 32; number++) {
            CHECK(sigaction(number, NULL, &old) == 0);
            if (old.sa_handler != SIG_DFL) wrong("signal %d has a handler", number);
        }
    }
}

static void nest(int number) {
    if (++nested > deepest) deepest = nested;
    if (nested < 5 && handled < 20) tell_self(number);
    nested--;
    handled++;
}
CASE(nodefer) {
    install(SIGUSR1, nest, SA_NODEFER);
    tell_self(SIGUSR1);
    printf("%d %d\n", handled, deepest);
    install(SIGUSR1, nest, 0);
    handled = deepest = 0;
    tell_self(SIGUSR1);
    printf("%d %d\n", handled, deepest);
}

CASE(resethand) {
    install(SIGUSR1, count, SA_RESETHAND);
    tell_self(SIGUSR1);
    struct sigaction old;
    sigaction(SIGUSR1, NULL, &old);
    CHECK(handled == 1 && old.sa_handler == SIG_DFL);
    pid_t child = fork();
    if (child == 0) {
        install(SIGTERM, count, SA_RESETHAND);
        tell_self(SIGTERM);
        tell_self(SIGTERM);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static volatile int mask_was_right;
static void look_at_mask(int number) {
    mask_was_right = is_blocked(number) && is_blocked(SIGUSR2) && !is_blocked(SIGTERM);
    tell_self(SIGUSR2);
    CHECK(is_pending(SIGUSR2));
    CHECK(nested == 0); /* the other one waits until this one is done */
    handled++;
}
static void count_nested(int number) {
    (void)number;
    nested++;
}
CASE(mask) {
    struct sigaction action = {.sa_handler = look_at_mask, .sa_mask = only(SIGUSR2)};
    sigaction(SIGUSR1, &action, NULL);
    install(SIGUSR2, count_nested, 0);
    for (int i = 0; i < 200; i++) {
        nested = 0;
        tell_self(SIGUSR1);
        CHECK(mask_was_right && nested == 1);
        CHECK(!is_blocked(SIGUSR1) && !is_blocked(SIGUSR2));
    }
    printf("%d\n", handled);
}

CASE(blocked_and_pending) {
    install(SIGUSR1, count, 0);
    install(SIGRTMIN, count, 0);
    sigset_t set = only(SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    for (int i = 1; i <= 100; i++) {
        handled = 0;
        sigprocmask(SIG_BLOCK, &set, NULL);
        for (int j = 0; j < 3; j++) tell_self(SIGUSR1), tell_self(SIGRTMIN);
        CHECK(handled == 0 && is_pending(SIGUSR1) && is_pending(SIGRTMIN));
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        SAME(handled, 4); /* once, and three times: those are queued */
        CHECK(!is_pending(SIGUSR1));
    }
    install(SIGUSR1, SIG_IGN, 0);
    tell_self(SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    tell_self(SIGUSR1);
    install(SIGUSR1, count, 0);
    handled = 0;
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    SAME(handled, 1); /* what is blocked waits, even if it is ignored */
}

static int order[8], ordered;
static void in_order(int number) { order[ordered++] = number - SIGRTMIN; }
CASE(order) {
    sigset_t set;
    sigemptyset(&set);
    struct sigaction action = {.sa_handler = in_order};
    sigfillset(&action.sa_mask);
    for (int i = 0; i < 5; i++) sigaddset(&set, SIGRTMIN + i), sigaction(SIGRTMIN + i, &action, NULL);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 4; i >= 0; i--) tell_self(SIGRTMIN + i);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    for (int i = 0; i < ordered; i++) printf("%d ", order[i]);
    puts("");
}

/* --- stacks --- */

static char *stack_base;
static stack_t seen_stack;
static volatile int on_it;
static void look_at_stack(int number) {
    char local;
    on_it = &local >= stack_base && &local < stack_base + 65536;
    sigaltstack(NULL, &seen_stack);
    if (number == SIGUSR2) handled++;
}
CASE(alternate_stack) {
    stack_base = malloc(65536);
    stack_t stack = {.ss_sp = stack_base, .ss_size = 65536}, old;
    CHECK(sigaltstack(&stack, &old) == 0 && old.ss_flags == SS_DISABLE);
    install(SIGUSR1, look_at_stack, SA_ONSTACK);
    install(SIGUSR2, look_at_stack, 0);
    for (int i = 0; i < 100; i++) {
        tell_self(SIGUSR1);
        CHECK(on_it && seen_stack.ss_flags == SS_ONSTACK && seen_stack.ss_sp == stack_base);
        tell_self(SIGUSR2);
        CHECK(!on_it && seen_stack.ss_flags == 0);
    }
    sigaltstack(NULL, &old);
    CHECK(old.ss_flags == 0 && old.ss_sp == stack_base && old.ss_size == 65536);
    stack.ss_flags = (int)SS_AUTODISARM;
    CHECK(sigaltstack(&stack, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        tell_self(SIGUSR1);
        CHECK(on_it && seen_stack.ss_flags == SS_DISABLE);
        sigaltstack(NULL, &old);
        CHECK(old.ss_flags == (int)SS_AUTODISARM && old.ss_sp == stack_base);
    }
    stack.ss_size = 100, stack.ss_flags = 0;
    CHECK(sigaltstack(&stack, NULL) == -1 && errno == ENOMEM);
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0);
    tell_self(SIGUSR1);
    CHECK(!on_it);
}

static sigjmp_buf place;
static void leave_overflow(int number, siginfo_t *given, void *context) {
    (void)number, (void)context;
    char local;
    CHECK(&local >= stack_base && &local < stack_base + 65536);
    info = *given;
    siglongjmp(place, 1);
}
APART static int endless(int n) {
    volatile char room[4096];
    room[0] = (char)n;
    return n < 0 ? 0 : endless(n + 1) + room[0];
}
static void *overflow(void *unused) {
    (void)unused;
    stack_t stack = {.ss_sp = stack_base, .ss_size = 65536};
    CHECK(sigaltstack(&stack, NULL) == 0);
    for (volatile int i = 0; i < 20; i++)
        if (sigsetjmp(place, 1) == 0)
            endless(0);
        else
            handled++;
    return NULL;
}
/* A stack that is full: only the other one can say so. */
CASE(stack_overflow) {
    stack_base = malloc(65536);
    install_full(SIGSEGV, leave_overflow, SA_ONSTACK);
    pthread_t thread;
    pthread_create(&thread, NULL, overflow, NULL);
    pthread_join(thread, NULL);
    printf("%d\n", handled);
}

/* --- leaving handlers --- */

static void leap(int number) {
    handled++;
    siglongjmp(place, number);
}
CASE(siglongjmp) {
    install(SIGUSR1, leap, 0);
    for (volatile int i = 0; i < 2000; i++) {
        if (sigsetjmp(place, 1) == 0) {
            tell_self(SIGUSR1);
            wrong("it came back");
        }
        CHECK(!is_blocked(SIGUSR1));
    }
    /* Without the mask: it stays blocked. */
    if (sigsetjmp(place, 0) == 0) tell_self(SIGUSR1);
    CHECK(is_blocked(SIGUSR1));
    printf("%d\n", handled);
}

static void leap_from_within(int number) {
    if (number == SIGUSR2) siglongjmp(place, 5);
    tell_self(SIGUSR2);
    wrong("not reached");
}
CASE(siglongjmp_out_of_two) {
    install(SIGUSR1, leap_from_within, 0);
    install(SIGUSR2, leap_from_within, 0);
    volatile int sum = 0;
    for (volatile int i = 0; i < 1000; i++) {
        int value = sigsetjmp(place, 1);
        if (value == 0) tell_self(SIGUSR1);
        sum += value;
    }
    printf("%d\n", sum);
}

static void change_mask(int number, siginfo_t *given, void *context) {
    (void)number, (void)given;
    ucontext_t *user = context;
    CHECK(!sigismember(&user->uc_sigmask, SIGUSR1));
    sigaddset(&user->uc_sigmask, SIGUSR2);
}
CASE(sigreturn_changes_the_mask) {
    install_full(SIGUSR1, change_mask, 0);
    install(SIGUSR2, count, 0);
    tell_self(SIGUSR1);
    CHECK(is_blocked(SIGUSR2) && !is_blocked(SIGUSR1));
    tell_self(SIGUSR2);
    CHECK(handled == 0);
    sigset_t set = only(SIGUSR2);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    CHECK(handled == 1);
}

static ucontext_t back, there;
static volatile int coroutine_steps;
static void coroutine(void) {
    for (;;) {
        coroutine_steps++;
        swapcontext(&there, &back);
    }
}
static void switch_in_handler(int number) {
    (void)number;
    swapcontext(&back, &there);
    handled++;
}
CASE(contexts) {
    static char stack[65536];
    getcontext(&there);
    there.uc_stack.ss_sp = stack, there.uc_stack.ss_size = sizeof stack;
    makecontext(&there, coroutine, 0);
    for (int i = 0; i < 1000; i++) swapcontext(&back, &there);
    install(SIGUSR1, switch_in_handler, 0);
    for (int i = 0; i < 200; i++) tell_self(SIGUSR1);
    printf("%d %d\n", coroutine_steps, handled);
}

/* --- interrupted calls --- */

static int pipes[2];
static void write_on_tick(int number) {
    (void)number;
    if (++handled % 3 == 0 && write(pipes[1], "x", 1) != 1) wrong("write");
}
/* Again and again: the first may come before the call that it is to interrupt. */
static void tick(void) {
    struct itimerval often = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &often, NULL);
}
CASE(restart) {
    CHECK(pipe(pipes) == 0);
    install(SIGALRM, write_on_tick, SA_RESTART);
    tick();
    for (int i = 0; i < 20; i++) {
        char letter = 0;
        SAME(read(pipes[0], &letter, 1), 1);
        CHECK(letter == 'x');
    }
}
CASE(eintr) {
    CHECK(pipe(pipes) == 0);
    install(SIGALRM, count, 0);
    tick();
    for (int i = 0; i < 20; i++) {
        char letter;
        int before = handled;
        SAME(read(pipes[0], &letter, 1), -1);
        CHECK(errno == EINTR && handled > before);
    }
    /* Those that are never restarted. */
    install(SIGALRM, count, SA_RESTART);
    for (int i = 0; i < 10; i++) {
        struct timespec left, second = {10, 0};
        SAME(nanosleep(&second, &left), -1);
        CHECK(errno == EINTR && left.tv_sec >= 8);
        struct pollfd one = {.fd = pipes[0], .events = POLLIN};
        SAME(poll(&one, 1, 10000), -1);
        CHECK(errno == EINTR);
        pause();
        CHECK(errno == EINTR);
    }
}
static void *waits_for_lock(void *lock) {
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}
/* A futex is restarted by a call of its own, with what the kernel remembers. */
CASE(restarted_waits) {
    install(SIGUSR1, count, SA_RESTART);
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    pthread_t thread;
    pthread_create(&thread, NULL, waits_for_lock, &lock);
    for (int i = 0; i < 50; i++) {
        struct timespec little = {0, 200000};
        pthread_kill(thread, SIGUSR1);
        nanosleep(&little, NULL);
    }
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    CHECK(handled > 0);
    /* The same for a sleep that is stopped and continued: it goes on. */
    pid_t child = fork();
    if (child == 0) {
        struct timespec some = {0, 100000000};
        _exit(nanosleep(&some, NULL) == 0 ? 0 : 1);
    }
    for (int i = 0; i < 5; i++) {
        int status;
        kill(child, SIGSTOP);
        CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
        kill(child, SIGCONT);
        CHECK(waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    SAME(status, 0);
}

/* --- waiting for signals --- */

CASE(sigsuspend) {
    install(SIGUSR1, count, 0);
    sigset_t set = only(SIGUSR1), none;
    sigemptyset(&none);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 500; i++) {
        tell_self(SIGUSR1);
        CHECK(handled == i);
        CHECK(sigsuspend(&none) == -1 && errno == EINTR);
        CHECK(handled == i + 1 && is_blocked(SIGUSR1));
    }
    for (int i = 0; i < 100; i++) {
        tell_self(SIGUSR1);
        struct timespec second = {10, 0};
        CHECK(ppoll(NULL, 0, &second, &none) == -1 && errno == EINTR);
        tell_self(SIGUSR1);
        CHECK(pselect(0, NULL, NULL, NULL, &second, &none) == -1 && errno == EINTR);
        CHECK(is_blocked(SIGUSR1));
    }
    printf("%d\n", handled);
}
CASE(sigwait) {
    sigset_t set = only(SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 200; i++) {
        int number;
        tell_self(SIGUSR1);
        CHECK(sigwait(&set, &number) == 0 && number == SIGUSR1);
        sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i});
        struct timespec second = {10, 0}, none = {0, 0};
        CHECK(sigtimedwait(&set, &info, &second) == SIGRTMIN && info.si_value.sival_int == i);
        CHECK(sigtimedwait(&set, &info, &none) == -1 && errno == EAGAIN);
    }
    int descriptor = signalfd(-1, &set, SFD_NONBLOCK);
    for (int i = 0; i < 200; i++) {
        struct signalfd_siginfo read_info;
        CHECK(read(descriptor, &read_info, sizeof read_info) == -1 && errno == EAGAIN);
        sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i});
        CHECK(read(descriptor, &read_info, sizeof read_info) == sizeof read_info);
        CHECK(read_info.ssi_signo == (unsigned)SIGRTMIN && read_info.ssi_int == i);
    }
}

/* --- timers and children --- */

CASE(timers) {
    install_full(SIGRTMIN, keep_info, 0);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 99};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec often = {{0, 1000000}, {0, 1000000}}, never = {{0, 0}, {0, 0}};
    timer_settime(timer, 0, &often, NULL);
    while (handled < 50) sched_yield();
    timer_settime(timer, 0, &never, NULL);
    CHECK(info.si_code == SI_TIMER && info.si_value.sival_int == 99);
    timer_delete(timer);
    install(SIGVTALRM, count, 0);
    install(SIGPROF, count, 0);
    struct itimerval used = {{0, 1000}, {0, 1000}};
    handled = 0;
    setitimer(ITIMER_VIRTUAL, &used, NULL);
    setitimer(ITIMER_PROF, &used, NULL);
    while (handled < 5) continue;
}
CASE(children) {
    install_full(SIGCHLD, keep_info, SA_RESTART);
    for (int i = 0; i < 20; i++) {
        int before = handled;
        pid_t child = fork();
        if (child == 0) _exit(i);
        while (handled == before) sched_yield();
        CHECK(info.si_code == CLD_EXITED && info.si_pid == child && info.si_status == i);
        CHECK(waitpid(child, NULL, 0) == child);
    }
    install_full(SIGCHLD, keep_info, SA_RESTART | SA_NOCLDSTOP);
    handled = 0;
    pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    int status;
    kill(child, SIGSTOP);
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    kill(child, SIGCONT);
    CHECK(waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
    CHECK(handled == 0);
    kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    while (handled == 0) sched_yield();
    CHECK(info.si_code == CLD_KILLED);
    install_full(SIGCHLD, keep_info, SA_NOCLDWAIT);
    child = fork();
    if (child == 0) _exit(3);
    CHECK(waitpid(child, &status, 0) == -1 && errno == ECHILD);
}

/* --- what a program ends by --- */

/* Each signal does what it does by itself: ends, stops, or nothing. */
CASE(default_actions) {
    for (int number = 1; number <= SIGRTMAX; number++) {
        if (number == 32 || number == 33) continue;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            kill(getpid(), number);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, WUNTRACED) == child);
        if (WIFSTOPPED(status)) {
            printf("%d stops ", number);
            kill(child, SIGKILL);
            CHECK(waitpid(child, &status, 0) == child);
        } else if (WIFSIGNALED(status)) {
            CHECK(WTERMSIG(status) == number);
            printf("%d ends ", number);
        } else
            printf("%d nothing ", number);
    }
    puts("");
}
/* Faults end a program, even when they are ignored or blocked. */
CASE(deadly_faults) {
    for (int how = 0; how < 3; how++)
        for (int what = 0; what < 4; what++) {
            pid_t child = fork();
            if (child == 0) {
                static const int numbers[] = {SIGSEGV, SIGILL, SIGTRAP, SIGFPE};
                sigset_t set = only(numbers[what]);
                if (how == 1) install(numbers[what], SIG_IGN, 0);
                if (how == 2) sigprocmask(SIG_BLOCK, &set, NULL);
                if (what == 0) *nowhere = 1;
                if (what == 1) asm volatile("ud2");
                if (what == 2) asm volatile("int3");
                if (what == 3) asm volatile("xor %%ecx, %%ecx\n div %%ecx" : : : "rax", "rcx", "rdx", "cc");
                _exit(0);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child);
            printf("%d ", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
        }
    puts("");
}
/* --- frames that cannot be --- */

static void say_code(int number, siginfo_t *given, void *context) {
    (void)context;
    _exit(number == SIGSEGV && given->si_code == SI_KERNEL && given->si_addr == NULL ? 100 : 99);
}
/* Calls with no stack at all: the frame can be neither written nor read. */
APART static void call_without_a_stack(long call, long first, long second, long third) {
    asm volatile("xor %%esp, %%esp\n syscall\n ud2"
                 :
                 : "a"(call), "D"(first), "S"(second), "d"(third)
                 : "rcx", "r11", "memory");
}
static void no_frame(int how) {
    static char room[1 << 16] __attribute__((aligned(4096)));
    stack_t whole = {.ss_sp = room, .ss_size = sizeof room}, small = {.ss_sp = room, .ss_size = 2048};
    sigset_t set = only(SIGSEGV);
    install(SIGUSR1, count, how < 2 ? SA_ONSTACK : 0);
    if (how % 2) install_full(SIGSEGV, say_code, SA_ONSTACK);
    switch (how) {
    case 0: /* An alternate stack that is too small for the frame. */
    case 1:
        small.ss_sp = room + 32768;
        CHECK(sigaltstack(&small, NULL) == 0);
        tell_self(SIGUSR1);
        for (size_t i = 0; i < sizeof room; i++) CHECK(room[i] == 0);
        break;
    case 2:
    case 3:
        CHECK(sigaltstack(&whole, NULL) == 0);
        call_without_a_stack(SYS_tgkill, getpid(), gettid(), SIGUSR1);
        break;
    case 4:
    case 5:
        CHECK(sigaltstack(&whole, NULL) == 0);
        call_without_a_stack(SYS_rt_sigreturn, 0, 0, 0);
        break;
    case 7: /* Blocked, so that it cannot be handled. */
        CHECK(sigaltstack(&whole, NULL) == 0 && sigprocmask(SIG_BLOCK, &set, NULL) == 0);
        call_without_a_stack(SYS_rt_sigreturn, 0, 0, 0);
        break;
    case 9:
        CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
        *nowhere = 1;
        break;
    case 10: /* Nowhere to return to. */
        syscall(SYS_rt_sigaction, SIGUSR1, (uint64_t[]){(uint64_t)count, 0, 0, 0}, NULL, 8);
        tell_self(SIGUSR1);
        break;
    default: /* Ignored. */
        install(SIGSEGV, SIG_IGN, 0);
        call_without_a_stack(SYS_tgkill, getpid(), gettid(), SIGUSR1);
    }
}
CASE(frames_without_room) {
    for (int how = 0; how < 11; how++) {
        pid_t child = fork();
        if (child == 0) {
            no_frame(how);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        printf("%d ", WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
    }
    puts("");
}
/* Signals whose default is nothing, while the program cannot decide whether it wants to know. */
CASE(handled_now_and_then) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGURG};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec often = {{0, 10000}, {0, 10000}};
    timer_settime(timer, 0, &often, NULL);
    for (long i = 0; i < or_else(amount, 20000); i++) {
        install(SIGURG, count, 0);
        install(SIGURG, i % 2 ? SIG_DFL : SIG_IGN, 0);
    }
    timer_delete(timer);
    install(SIGURG, count, 0);
    puts("still here");
}
/* The new mask and the old one in the same place. */
CASE(mask_in_one_place) {
    sigset_t set = only(SIGSEGV), now;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &set, &set, 8);
    CHECK(!sigismember(&set, SIGSEGV));
    sigprocmask(SIG_SETMASK, NULL, &now);
    CHECK(sigismember(&now, SIGSEGV));
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &set, &set, 8);
    CHECK(sigismember(&set, SIGSEGV));
    sigprocmask(SIG_SETMASK, NULL, &now);
    CHECK(!sigismember(&now, SIGSEGV));
    puts("as asked");
}
/* Signals to a loop that never makes a system call, of calls to addresses that end in the same digits. */
CASE(calls_to_the_like) {
    enum { ALIKE = 1 << 16, COUNT = 3 };
    unsigned char *made = mmap(NULL, COUNT * ALIKE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(made != MAP_FAILED);
    for (int i = 0; i < COUNT; i++) made[i * ALIKE] = 0xc3;
    CHECK(mprotect(made, COUNT * ALIKE, PROT_READ | PROT_EXEC) == 0);
    install(SIGALRM, count, 0);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, NULL);
    while (handled < 500)
        for (int i = 0; i < COUNT; i++) ((void (*)(void))(made + i * ALIKE))();
    puts("all came");
}
CASE(death_by_term) {
    puts("before");
    raise(SIGTERM);
}
CASE(death_by_kill) {
    puts("before");
    kill(getpid(), SIGKILL);
}
CASE(death_by_segv) {
    puts("before");
    *nowhere = 1;
}
CASE(death_by_ill) {
    puts("before");
    asm volatile("ud2");
}
CASE(death_by_trap) {
    puts("before");
    asm volatile("int3");
}
CASE(death_by_realtime) {
    puts("before");
    tell_self(SIGRTMIN + 3);
}
/* A second fault while the first is handled. */
static void fault_again(int number) {
    (void)number;
    *nowhere = 1;
}
CASE(death_in_a_handler) {
    puts("before");
    install(SIGSEGV, fault_again, 0);
    *nowhere = 1;
}
/* No stack to write the frame to. */
CASE(death_without_a_stack) {
    puts("before");
    install(SIGSEGV, count, 0);
    asm volatile("mov $64, %%esp\n mov (%%rsp), %%rax" : : : "rax", "memory");
}
