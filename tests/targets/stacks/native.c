/* Functions that Python calls, that call Python, and that wait. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

typedef int (*callback)(int);

/* The names that C++ and Rust give to outer::Inner::call(int (*)(int), int) and outer::wait. */
int inner_call(callback, int) __asm__("_ZN5outer5Inner4callEPFiiEi");
int rust_wait(int) __asm__("_ZN5outer4wait17h0123456789abcdefE");

int inner_call(callback function, int n) {
    volatile int result = function(n);
    return result + 1;
}

int alternate(callback function, int n) {
    volatile int result = inner_call(function, n);
    return result + 1;
}

int rust_wait(int file) {
    char byte;
    volatile int result = read(file, &byte, 1);
    return result + 1;
}

int wait_here(int file) {
    volatile int result = rust_wait(file);
    return result + 1;
}

/* Each sleeps until `file` has something to read, in pieces of 50 ms, and counts how often it was interrupted. */
static int interrupted[3];

int interruptions(int which) { return interrupted[which]; }

static void *in_epoll(void *file) {
    struct epoll_event event = {.events = EPOLLIN}, found;
    int epoll = epoll_create1(0), answer;
    epoll_ctl(epoll, EPOLL_CTL_ADD, (int)(long)file, &event);
    do {
        answer = epoll_wait(epoll, &found, 1, 50);
        if (answer < 0 && errno == EINTR)
            interrupted[0]++;
    } while (answer <= 0);
    return NULL;
}

static void *in_poll(void *file) {
    struct pollfd waits = {.fd = (int)(long)file, .events = POLLIN};
    int answer;
    do {
        answer = poll(&waits, 1, 50);
        if (answer < 0 && errno == EINTR)
            interrupted[1]++;
    } while (answer <= 0);
    return NULL;
}

static void *in_nanosleep(void *file) {
    struct pollfd waits = {.fd = (int)(long)file, .events = POLLIN};
    struct timespec moment = {.tv_nsec = 50000000};
    do {
        if (nanosleep(&moment, NULL) < 0 && errno == EINTR)
            interrupted[2]++;
    } while (poll(&waits, 1, 0) <= 0);
    return NULL;
}

/* Threads that Python does not know. */
int start_sleepers(int file) {
    void *(*functions[])(void *) = {in_epoll, in_poll, in_nanosleep};
    for (int which = 0; which < 3; which++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, functions[which], (void *)(long)file))
            return -1;
        pthread_detach(thread);
    }
    return 0;
}
