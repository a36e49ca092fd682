// Finds the handler of a request by patterns, the first that matches.
#include <string>
#include <vector>

#include "program.h"

namespace {

bool match_here(const char *pattern, const char *path) {
    if (*pattern == '\0')
        return *path == '\0';
    if (*pattern == '*') {
        for (const char *rest = path;; rest++) {
            if (match_here(pattern + 1, rest))
                return true;
            if (*rest == '\0')
                return false;
        }
    }
    return *path != '\0' && (*pattern == '?' || *pattern == *path) &&
           match_here(pattern + 1, path + 1);
}

int find_handler(const std::vector<std::string> &patterns, const std::string &path) {
    for (size_t i = 0; i < patterns.size(); i++)
        if (match_here(patterns[i].c_str(), path.c_str()))
            return static_cast<int>(i);
    return -1;
}

}  // namespace

int main(int, char **argv) {
    count_in(argv[1]);
    const std::vector<std::string> patterns = {"/static/*", "*/a*/*e*/*a*.json", "/v?/*/*/*/edit",
                                               "*/*a*a*/*/new", "/*"};
    uint64_t state = 88172645463325252u;
    volatile int found = 0;
    for (;;) {
        std::string path = "/v1";
        for (int i = 0; i < 6; i++)
            path += "/area" + std::to_string(next_random(&state) % 100);
        found = found + find_handler(patterns, path);
        count(1);
    }
}
