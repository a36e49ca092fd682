// Objects: virtual functions, templates, lambdas, exceptions that unwind, an inner class.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

class Shape {
public:
    explicit Shape(std::string name) : name(std::move(name)) {}
    virtual ~Shape() {}
    virtual double area() const = 0;
    virtual bool is_round() const { return false; }
    const std::string name;
};

class Square : public Shape {
public:
    explicit Square(double side) : Shape("square"), side(side) {
        if (side < 0)
            throw side;
    }
    double area() const override { return side * side; }

private:
    double side;
};

class Circle : public Shape {
public:
    explicit Circle(double radius) : Shape("circle"), radius(radius) {}
    double area() const override {
        return 3 * radius * radius;
    }
    bool is_round() const override { return true; }

private:
    double radius;
};

template <typename Value, int limit>
class Stack {
public:
    bool push(const Value &value) {
        if (values.size() >= limit)
            return false;
        values.push_back(value);
        return true;
    }
    Value pop() {
        if (values.empty()) throw 1;
        Value last = values.back();
        values.pop_back();
        return last;
    }

private:
    std::vector<Value> values;
};

static int failures = 0;

static std::unique_ptr<Shape> make(int i) {
    switch (i % 3) {
    case 0:
        return std::make_unique<Square>(i - 3);
    case 1:
        return std::make_unique<Circle>(i);
    default:
        return nullptr;
    }
}

int main() {
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 9; i++) {
        try {
            auto shape = make(i);
            if (shape)
                shapes.push_back(std::move(shape));
        } catch (double side) {
            failures++;
        }
    }
    double total = 0;
    int round = 0;
    for (const auto &shape : shapes) {
        total += shape->area();
        if (shape->is_round())
            round++;
    }
    using Owned = std::unique_ptr<Shape>;
    auto is_smaller = [](const Owned &a, const Owned &b) {
        return a->area() < b->area();
    };
    std::sort(shapes.begin(), shapes.end(), is_smaller);
    Stack<int, 2> few;
    Stack<std::string, 4> texts;
    for (int i = 0; i < 5; i++) {
        few.push(i);
        texts.push(shapes[i]->name);
    }
    try {
        while (true)
            round += few.pop();
    } catch (int) {
        failures++;
    }
    std::printf("%zu %g %d %d %s\n", shapes.size(), total, round, failures, texts.pop().c_str());
    return 0;
}
