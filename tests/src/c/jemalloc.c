// A program with jemalloc linked into it. Each line with a comment holds blocks of these usable bytes at the end.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <malloc.h>
#include <pthread.h>

#define KEPT 1000
static void *kept[KEPT * 4];
static size_t count, sums[16];

// Keeps a block for the line with this number.
static void keep(int line, void *block) {
    memset(block, 1, 1);
    kept[count++] = block;
    sums[line] += malloc_usable_size(block);
}

static void *in_thread(void *sizes) {
    for (size_t n = 0; n < 200; n++) keep(9, malloc(100 + n)); // 9
    return sizes;
}

int main(void) {
    for (size_t n = 0; n < KEPT; n++) keep(0, malloc(n * 7)); // 0
    for (size_t n = 0; n < 100; n++) keep(1, malloc(n * 5000 + 1)); // 1
    for (size_t n = 0; n < 400; n++) keep(2, calloc(n, 3)); // 2
    for (size_t n = 0; n < 300; n++) {
        void *block = NULL;
        if (posix_memalign(&block, (size_t)8 << n % 10, n * 100)) return 1; // 3
        keep(3, block);
    }
    for (size_t n = 0; n < 300; n++) keep(4, aligned_alloc((size_t)16 << n % 12, ((size_t)16 << n % 12) * (n % 5 + 1))); // 4
    for (size_t n = 1; n < 300; n++) {
        void *block = malloc(n);
        keep(5, realloc(block, n * 90)); // 5
    }
    for (size_t n = 1; n < 20; n++) {
        void *block = malloc(1 << 20);
        keep(6, realloc(block, (1 << 20) + n * 300000)); // 6
    }
    for (size_t n = 0; n < 50; n++) keep(7, realloc(NULL, n * 1000)); // 7
    // Nothing of this is left.
    for (size_t n = 0; n < 2000; n++) free(malloc(n)); // 8
    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, NULL);
    pthread_join(thread, NULL);
    for (int line = 0; line < 10; line++) printf("%zu\n", sums[line]);
    return 0;
}
