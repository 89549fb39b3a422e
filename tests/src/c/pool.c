/* A library with a pool of threads: its constructor starts the threads and waits for their first work, in which they
   compete for the same addresses. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 8 };
static double until;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void *work(void *unused) {
    while (now() < until)
        for (int times = 0; times < 100; times++) {
            volatile char *block = malloc(70000);
            *block = 1;
            free((void *)block);
        }
    return unused;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t threads[THREADS];
    until = now() + 0.3;
    for (int number = 0; number < THREADS; number++) pthread_create(&threads[number], 0, work, 0);
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], 0);
}
