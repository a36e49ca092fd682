/* Sleeps for moments, in calls that a stop would disturb, and calls counted functions in between; see
 * lockstep.h. Whoever changes its code meets threads that are just waking up. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>

#define FUNCTIONS(X) X(first) X(second) X(third) X(fourth)
#include "lockstep.h"

#define STEP(name)                                                                                         \
    APART uint64_t name(uint64_t x) {                                                                      \
        COUNT(name);                                                                                       \
        return (x ^ name##_number) * 1099511628211u;                                                       \
    }
STEP(first) STEP(second) STEP(third) STEP(fourth)

static void one_round(unsigned long number) {
    static __thread int queue = -1;
    struct epoll_event event;
    struct timespec moment = {0, 1000 + number % 7 * 3000};
    if (queue < 0) queue = epoll_create1(EPOLL_CLOEXEC);
    check(epoll_pwait2(queue, &event, 1, &moment, NULL) == 0, "epoll_pwait2");
    uint64_t value = fourth(third(second(first(number))));
    check(value == (((number * 1099511628211u ^ 1) * 1099511628211u ^ 2) * 1099511628211u ^ 3) * 1099511628211u,
          "a step");
}

int main(int argc, char **argv) { return lockstep_main(argc, argv); }
