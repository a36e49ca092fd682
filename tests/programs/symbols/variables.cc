// Variables to look for by name.
int exported = 1;
static long own[3] = {1, 2, 3};
thread_local int each_thread = 4;
namespace place {
double within = 5;
}
extern "C" int both(void) { return 6; }

int main() { return exported + static_cast<int>(own[exported]) + each_thread + static_cast<int>(place::within) + both(); }
