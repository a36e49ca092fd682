// Parses documents into trees, and signs each.
#include <memory>
#include <string>
#include <vector>

#include "program.h"

namespace {

struct Node {
    std::string name;
    std::vector<std::unique_ptr<Node>> children;
};

[[gnu::noinline]] std::unique_ptr<Node> parse_tree(uint64_t *state, int depth) {
    auto node = std::make_unique<Node>();
    node->name = "element-with-a-name-" + std::to_string(next_random(state) % 1000);
    if (depth > 0)
        for (int i = 0; i < 4; i++)
            node->children.push_back(parse_tree(state, depth - 1));
    return node;
}

[[gnu::noinline]] uint32_t sign_text(const std::string &text) {
    uint32_t a = 1, b = 0;
    for (int round = 0; round < 7; round++)
        for (unsigned char c : text) {
            a = (a + c) % 65521;
            b = (b + a) % 65521;
        }
    return b << 16 | a;
}

}  // namespace

int main(int, char **argv) {
    count_in(argv[1]);
    uint64_t state = 88172645463325252u;
    std::string text(1000, 'x');
    volatile uint32_t sum = 0;
    for (;;) {
        for (int i = 0; i < 8; i++) {
            auto tree = parse_tree(&state, 3);
            text[0] = tree->name.back();
        }
        sum = sum + sign_text(text);
        count(1);
    }
}
