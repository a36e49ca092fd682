/* Calls much of the C library, with results that are the same every time. */
#define _GNU_SOURCE
#include <argz.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ftw.h>
#include <getopt.h>
#include <glob.h>
#include <inttypes.h>
#include <langinfo.h>
#include <libgen.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <obstack.h>
#include <poll.h>
#include <pthread.h>
#include <regex.h>
#include <search.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>
#include <wordexp.h>

#define obstack_chunk_alloc malloc
#define obstack_chunk_free free

static unsigned long sum;

static void add(const void *data, size_t size) {
    for (const unsigned char *byte = data; size--; byte++) sum = sum * 31 + *byte;
}

static void strings(void) {
    char buffer[512] = {0}, other[512] = {0}, *rest = NULL;
    for (size_t size = 0; size < 300; size += 7) {
        memset(buffer, 'a' + (int)size % 26, sizeof buffer);
        buffer[size] = 0;
        memcpy(other, buffer, size + 1);
        memmove(other + 3, other, size);
        add(other, size);
        sum += strlen(buffer) + strnlen(buffer, 20) + (size_t)strcmp(buffer, other);
        sum += (size_t)(strchr(buffer, 'z') != NULL) + (size_t)(strrchr(buffer, 'q') != NULL);
        sum += (size_t)(memchr(buffer, 'x', size) != NULL) + (size_t)(memmem(buffer, 300, "bb", 2) != NULL);
        sum += (size_t)(memcmp(buffer, other, size) == 0) + strspn(buffer, "abc") + strcspn(buffer, "xyz");
        sum += (size_t)(strstr(other, "aab") != NULL) + (size_t)(strcasestr(other, "CC") != NULL);
        sum += (size_t)(strncmp(buffer, other, 5) == 0) + (size_t)(strcasecmp(buffer, other) == 0);
        sum += (size_t)(rawmemchr(buffer, 0) != NULL) + (size_t)(memrchr(buffer, 'c', size) != NULL);
        sum += (size_t)strverscmp(buffer, other) + (size_t)(strpbrk(buffer, "mno") != NULL);
    }
    strcpy(buffer, "one,two;three,,four");
    for (char *word = strtok_r(buffer, ",;", &rest); word; word = strtok_r(NULL, ",;", &rest)) add(word, strlen(word));
    char *next = strcpy(buffer, "x:y::z");
    while (strsep(&next, ":")) sum++;
    sum += strlen(stpcpy(stpncpy(buffer, "front", 3), "back")) + strlen(strcat(strcpy(buffer, "a"), "b"));
    strncat(buffer, "cdef", 2);
    char *twice = strdup(buffer), *part = strndup(buffer, 2);
    sum += (size_t)strcoll(twice, part) + strxfrm(buffer, twice, sizeof buffer) + (size_t)(strlen(strerror(EIO)) > 0);
    free(twice);
    free(part);
    wchar_t wide[64] = {0};
    sum += mbstowcs(wide, "wide text", 64) + wcslen(wide) + (size_t)wcscmp(wide, L"wide") + (size_t)(wcsstr(wide, L"text") - wide);
    sum += wcstombs(buffer, wide, sizeof buffer) + (size_t)wcstol(L"123", NULL, 10) + (size_t)towupper(L'a');
    sum += (size_t)swprintf(wide, 64, L"%d %ls", 5, L"wide");
    for (int c = 0; c < 128; c++) sum += (size_t)(!!isalpha(c) + !!isdigit(c) + !!ispunct(c) + toupper(c) + tolower(c));
    char *argz = NULL;
    size_t size = 0;
    argz_create_sep("p:q:r", ':', &argz, &size);
    sum += argz_count(argz, size);
    free(argz);
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static int compare_r(const void *a, const void *b, void *extra) { return compare(a, b) + *(int *)extra; }
static void visit(const void *node, VISIT which, int depth) {
    if (which == postorder || which == leaf) sum += (size_t)(**(int *const *)node * depth);
}

static void numbers(void) {
    static int items[1000];
    int zero = 0;
    for (int i = 0; i < 1000; i++) items[i] = i * 7919 % 1009;
    qsort(items, 1000, sizeof *items, compare);
    qsort_r(items, 500, sizeof *items, compare_r, &zero);
    for (int i = 0; i < 1009; i += 13) sum += bsearch(&i, items, 1000, sizeof *items, compare) != NULL;
    void *root = NULL;
    for (int i = 0; i < 50; i++) tsearch(&items[i * 17], &root, compare);
    twalk(root, visit);
    for (int i = 0; i < 50; i++) tdelete(&items[i * 17], &root, compare);
    hcreate(64);
    for (int i = 0; i < 20; i++) hsearch((ENTRY){(char *[]){"a", "b", "c", "d", "e"}[i % 5], items}, ENTER);
    hdestroy();
    srand(7);
    srandom(7);
    srand48(7);
    sum += (size_t)(rand() + random() + lrand48());
    const char *texts[] = {"0", "-12", "1.5e10", "0x1p-3", "inf", "nan", "123456789012345678901234567890", "1e-320", "7.038531e-26"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double value = strtod(texts[i], NULL);
        long double longer = strtold(texts[i], NULL);
        char buffer[512];
        int size = snprintf(buffer, sizeof buffer, "%.17g %a %Lf %e %f %d %lx %o %s %c %5.3s|%-8d|%+d|%'d|%zu|%p", value, value,
                            longer, value, value, -5, 255UL, 8, texts[i], 'x', "abcdef", 7, 3, 1234567, sizeof value, NULL);
        add(buffer, (size_t)size);
        sum += (size_t)strtol(texts[i], NULL, 0) + strtoul(texts[i], NULL, 16) + (size_t)strtof(texts[i], NULL) + (size_t)atoi(texts[i]);
    }
    int a = 0;
    char word[16];
    double d = 0;
    sum += (size_t)sscanf("42 hello 2.75 [xyz]", "%d %15s %lf [%*[a-z]]", &a, word, &d) + (size_t)a;
    for (double x = 0.1; x < 5; x += 0.37) {
        double results[] = {sin(x), cos(x), tan(x), exp(x), log(x), pow(x, 1.7), sqrt(x), atan2(x, 2), cbrt(x), floor(x), fmod(x, 0.3),
                            sinh(x), erf(x), tgamma(x), hypot(x, 3), log1p(x), asin(x / 6), round(x), ldexp(x, 3), expm1(x)};
        add(results, sizeof results);
    }
    div_t parts = div(17, 5);
    sum += (size_t)(parts.quot + parts.rem) + (size_t)llabs(-4) + (size_t)ffs(64);
}

static void patterns(void) {
    regex_t regex;
    regmatch_t matches[3];
    const char *all[] = {"(a|b)*c", "^x[[:digit:]]+$", "\\(ab\\)*\\1", "(foo|bar){2,3}"};
    for (int i = 0; i < 4; i++) {
        if (regcomp(&regex, all[i], i == 2 ? 0 : REG_EXTENDED)) continue;
        sum += (size_t)regexec(&regex, "ababc", 3, matches, 0) + (size_t)regexec(&regex, "x123", 3, matches, 0);
        sum += (size_t)regexec(&regex, "foobarfoo", 3, matches, 0);
        regfree(&regex);
    }
    sum += (size_t)fnmatch("*.[ch]", "file.c", 0) + (size_t)fnmatch("a?b*", "axbyz", FNM_PATHNAME);
    glob_t found;
    if (glob("/usr/lib*", 0, NULL, &found) == 0) sum += found.gl_pathc > 0;
    globfree(&found);
    wordexp_t expanded;
    if (wordexp("a 'b c' $((1+2)) ~", &expanded, WRDE_NOCMD) == 0) sum += expanded.we_wordc;
    wordfree(&expanded);
    char path[] = "/usr/lib/x.so", again[] = "/usr/lib/x.so";
    add(basename(path), 4);
    add(dirname(again), 4);
    char *arguments[] = {"p", "-a", "--long=3", "-b", "x", "rest", NULL};
    struct option options[] = {{"long", required_argument, NULL, 'l'}, {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(6, arguments, "ab:", options, NULL)) != -1;) sum += (size_t)option;
}

static void memory(void) {
    void *held[200];
    for (size_t i = 0; i < 200; i++) held[i] = i % 3 ? malloc(i * i) : calloc(i, 8);
    for (size_t i = 0; i < 200; i += 2) held[i] = realloc(held[i], i * 100 + 1);
    for (size_t i = 0; i < 200; i++) free(held[i]);
    void *aligned = aligned_alloc(64, 640), *large = malloc(1 << 20);
    free(aligned);
    free(large);
    struct obstack stack;
    obstack_init(&stack);
    for (int i = 0; i < 100; i++) obstack_grow(&stack, &i, sizeof i);
    add(obstack_finish(&stack), 400);
    obstack_free(&stack, NULL);
    void *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(page, 8192, MADV_DONTNEED);
    munmap(page, 8192);
}

static int walked(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)path, (void)status;
    sum += (size_t)(kind + where->level);
    return 0;
}

static void files(void) {
    FILE *file = fopen("scratch", "w+");
    if (!file) abort();
    for (int i = 0; i < 300; i++) fprintf(file, "line %d of some\n", i);
    fputs("last\n", file);
    fputc('x', file);
    rewind(file);
    char *line = NULL, buffer[64] = {0};
    size_t size = 0;
    while (getline(&line, &size, file) > 0) sum += strlen(line);
    free(line);
    fseek(file, 10, SEEK_SET);
    sum += fread(buffer, 1, 20, file) + (size_t)ftell(file) + (size_t)fgetc(file);
    ungetc('u', file);
    sum += (size_t)fscanf(file, "%63s", buffer);
    fclose(file);
    char *text = NULL;
    file = open_memstream(&text, &size);
    fprintf(file, "%s %d", "in memory", 5);
    fclose(file);
    add(text, size);
    free(text);
    file = fmemopen(buffer, sizeof buffer, "w");
    fwrite("abc", 1, 3, file);
    fclose(file);
    int ends[2], descriptor = open("scratch", O_RDWR);
    struct iovec parts[] = {{buffer, 3}, {buffer, 5}};
    sum += (size_t)(pread(descriptor, buffer, 8, 5) + pwrite(descriptor, buffer, 4, 0) + readv(descriptor, parts, 2));
    sum += (size_t)lseek(descriptor, 0, SEEK_END);
    ftruncate(descriptor, 100);
    struct stat status;
    fstat(descriptor, &status);
    sum += (size_t)status.st_size;
    close(descriptor);
    if (pipe(ends) == 0) {
        struct pollfd ready = {ends[0], POLLIN, 0};
        write(ends[1], "p", 1);
        poll(&ready, 1, 1000);
        close(ends[0]);
        close(ends[1]);
    }
    mkdir("folder", 0700);
    rename("scratch", "folder/moved");
    nftw("folder", walked, 8, FTW_PHYS);
    unlink("folder/moved");
    rmdir("folder");
}

static jmp_buf back;
static int caught;
static void on_signal(int number) { caught += number; }
static ucontext_t outer, inner;
static void inside(void) { sum++; }
static void *run(void *argument) { return (char *)argument + 1; }
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void control(void) {
    for (volatile int i = 0; i < 10; i++)
        if (!setjmp(back)) longjmp(back, 1);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 5; i++) raise(SIGUSR1);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR1);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    static char stack[65536];
    getcontext(&inner);
    inner.uc_stack.ss_sp = stack;
    inner.uc_stack.ss_size = sizeof stack;
    inner.uc_link = &outer;
    makecontext(&inner, inside, 0);
    swapcontext(&outer, &inner);
    pthread_once(&once, inside);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *result;
        pthread_mutex_lock(&mutex);
        pthread_create(&thread, NULL, run, NULL);
        pthread_mutex_unlock(&mutex);
        pthread_join(thread, &result);
    }
    setenv("NAME", "value", 1);
    sum += strlen(getenv("NAME"));
    unsetenv("NAME");
    setlocale(LC_ALL, "C");
    sum += strlen(nl_langinfo(CODESET)) + strlen(localeconv()->decimal_point);
    time_t moment = 1000000000;
    struct tm parts;
    char text[128];
    setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
    tzset();
    for (int i = 0; i < 20; i++, moment += 20000000) {
        localtime_r(&moment, &parts);
        sum += strftime(text, sizeof text, "%A %d %B %Y %H:%M:%S %Z %j %U", &parts) + (size_t)mktime(&parts);
        gmtime_r(&moment, &parts);
        add(asctime_r(&parts, text), 24);
        strptime("2001-02-03 04:05:06", "%Y-%m-%d %H:%M:%S", &parts);
    }
}

static void bye(void) { puts("bye"); }

int main(void) {
    atexit(bye);
    for (int i = 0; i < 3; i++) {
        strings();
        numbers();
        patterns();
        memory();
        files();
        control();
    }
    printf("%d\n", caught);
    return 0;
}
