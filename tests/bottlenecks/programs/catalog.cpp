// Builds a catalogue of titles for each request, and gives it up again.
#include <list>
#include <string>

#include "program.h"

namespace {

struct Entry {
    std::string title, author;
};

[[gnu::noinline]] size_t build_catalogue(uint64_t *state) {
    std::list<Entry> entries;
    for (int i = 0; i < 2000; i++) {
        size_t size = 24 + next_random(state) % 200;
        entries.push_back({std::string(size, 't'), std::string(size / 2 + 16, 'a')});
        if (i % 3 == 0)
            entries.pop_front();
    }
    return entries.size();
}

}  // namespace

int main(int, char **argv) {
    count_in(argv[1]);
    uint64_t state = 88172645463325252u;
    for (;;) {
        build_catalogue(&state);
        count(1);
    }
}
