// A small HTTP server: one thread accepts, four answer what is in its queue.
#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "program.h"

enum { WORKERS = 4, PLACES = 64 };

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_filled = PTHREAD_COND_INITIALIZER;
static int queue[PLACES];
static unsigned first, last;

static int take(void) {
    pthread_mutex_lock(&queue_lock);
    while (first == last)
        pthread_cond_wait(&queue_filled, &queue_lock);
    int client = queue[first++ % PLACES];
    pthread_mutex_unlock(&queue_lock);
    return client;
}

static void *worker(void *argument) {
    static const char answer[] = "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nok\n";
    char request[2048];
    (void)argument;
    for (;;) {
        int client = take();
        if (read(client, request, sizeof request) > 0 &&
            write(client, answer, sizeof answer - 1) > 0)
            count(1);
        close(client);
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    count_in(argv[1]);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 64) < 0)
        abort();
    pthread_t thread;
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&thread, NULL, worker, NULL);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0)
            continue;
        pthread_mutex_lock(&queue_lock);
        queue[last++ % PLACES] = client;
        pthread_cond_signal(&queue_filled);
        pthread_mutex_unlock(&queue_lock);
    }
}
