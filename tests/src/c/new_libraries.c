/* Threads that allocate after libraries with thread-local variables were loaded: `new_libraries FOLDER`. The loader then
 * allocates room for these variables, with malloc, when a thread next accesses any thread-local variable of a library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIBRARIES = 120, THREADS = 4, ROUNDS = 4 };

static pthread_barrier_t barrier;
static int *(*address[LIBRARIES])(void);

static void *old_thread(void *number) {
    long n = (long)number;
    void *blocks[64] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier); /* the main thread loads libraries in between */
        for (int i = 0; i < 5000; i++) {
            free(blocks[i & 63]);
            blocks[i & 63] = malloc(16 + (i * 37 + n) % 100000);
        }
        for (int i = 0; i < LIBRARIES; i++) {
            if (address[i] && (i + n) % 3 == 0) {
                *address[i]() += 1;
            }
        }
    }
    for (int i = 0; i < 64; i++) {
        free(blocks[i]);
    }
    return 0;
}

static void *new_thread(void *nothing) {
    for (int i = 0; i < LIBRARIES; i++) {
        if (address[i]) {
            free(malloc(100000));
            *address[i]() += 1;
        }
    }
    return nothing;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS], other;
    if (count != 2) {
        return 2;
    }
    pthread_barrier_init(&barrier, 0, THREADS + 1);
    for (long i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], 0, old_thread, (void *)i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        for (int i = round * LIBRARIES / ROUNDS; i < (round + 1) * LIBRARIES / ROUNDS; i++) {
            char name[4096];
            snprintf(name, sizeof name, "%s/copy%d.so", arguments[1], i);
            void *library = dlopen(name, RTLD_NOW);
            if (!library) {
                puts(dlerror());
                return 2;
            }
            address[i] = (int *(*)(void))dlsym(library, "address");
        }
        pthread_create(&other, 0, new_thread, 0);
        pthread_barrier_wait(&barrier);
        pthread_join(other, 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], 0);
    }
    puts("well");
    return 0;
}
