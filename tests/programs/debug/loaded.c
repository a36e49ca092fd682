// What loading.c loads and unloads.
static int loaded_calls;
int loaded_value;

static int inner(int number) {
    int doubled = number * 2;
    return doubled + loaded_calls;
}

int loaded(int number) {
    loaded_calls++;
    loaded_value = inner(number);
    return loaded_value;
}
