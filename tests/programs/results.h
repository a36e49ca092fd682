// Functions that give their callers all kinds of things; each is called once for each line of input, and what
// came of those that give integers is said.
#define FUNCTION __attribute__((noinline))

struct mixed { int number; float fraction; };
struct floats { float x, y; };
struct pair { long first, second; };
struct large { long words[4]; };
union either { float fraction; int number; };
enum color { RED, GREEN = 7 };
typedef int vector __attribute__((vector_size(16)));
typedef double real;
typedef const real precise;

static volatile int seed = 3;
static int place;
