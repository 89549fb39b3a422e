/* Leaves patterns of pages whose content the program knows: a burst of small blocks of which one in 64 survives, blocks of
   threads with arenas of their own, large blocks and then small ones, memory that it maps itself, and a block that it never
   touches. Prints the truth, which it reads from the system's table of its pages; then waits for the file `trim`, returns free
   memory to the system, prints how much that was, and waits for the file `end`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef JEMALLOC
int mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);
#endif

enum { PAGE = 4096, BURST = 200000, SURVIVOR = 64, THREADS = 3, OF_THREAD = 4000, LARGE = 24 };

static uintptr_t *addresses;  /* of all blocks, live or freed, in their own mapping */
static size_t *sizes;         /* usable bytes */
static char *is_live;
static size_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t note(void *block) {
    memset(block, 1, malloc_usable_size(block));
    pthread_mutex_lock(&lock);
    addresses[count] = (uintptr_t)block;
    sizes[count] = malloc_usable_size(block);
    is_live[count] = 1;
    size_t place = count++;
    pthread_mutex_unlock(&lock);
    return place;
}

static void release(size_t place) {
    free((void *)addresses[place]);
    is_live[place] = 0;
}

__attribute__((noinline)) static size_t insert(void) {
    return note(malloc(64)); /* survivors */
}

static void burst(void) {
    size_t first = count;
    for (int i = 0; i < BURST; i++) insert();
    for (int i = 0; i < BURST; i++)
        if (i % SURVIVOR) release(first + i);
}

static void *of_thread(void *barrier) {
    char stack[200000];
    memset(stack, 1, sizeof stack);
    __asm__ volatile("" : : "r"(stack));
    size_t places[OF_THREAD];
    for (int i = 0; i < OF_THREAD; i++) places[i] = note(malloc(500));
    for (int i = 0; i < OF_THREAD; i++)
        if (i % 2) release(places[i]);
    pthread_barrier_wait(barrier);
    pause();
    return 0;
}

static void large_then_small(void) {
    size_t places[LARGE];
    for (int i = 0; i < LARGE; i++) places[i] = note(malloc(100000));
    for (int i = 0; i < LARGE; i += 2) release(places[i]);
    for (int i = 0; i < 300; i++) note(malloc(1000));
}

static int compare(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

static int is_resident(uintptr_t page) {
    static int table = -1;
    if (table < 0) table = open("/proc/self/pagemap", O_RDONLY);
    uint64_t entry = 0;
    if (pread(table, &entry, 8, page / PAGE * 8) != 8) exit(3);
    return entry >> 63;
}

/* Returns the sorted distinct pages on which blocks are, or have been. */
static size_t pages_of(uintptr_t *pages, int live_only) {
    size_t found = 0, kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (live_only && !is_live[i]) continue;
        for (uintptr_t page = addresses[i] / PAGE * PAGE; page < addresses[i] + sizes[i]; page += PAGE) pages[found++] = page;
    }
    qsort(pages, found, sizeof *pages, compare);
    for (size_t i = 0; i < found; i++)
        if ((!kept || pages[kept - 1] != pages[i]) && is_resident(pages[i])) pages[kept++] = pages[i];
    return kept;
}

static long resident(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long bytes = 0, kib;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Rss: %ld kB", &kib) == 1) bytes = kib * 1024;
    fclose(file);
    return bytes;
}

static void wait_for(const char *file) {
    fflush(stdout);
    while (access(file, F_OK)) usleep(10000);
}

static void *map(size_t bytes) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(void) {
    alarm(600); /* if the test fails */
    addresses = map(1 << 24), sizes = map(1 << 24), is_live = map(1 << 22);
    uintptr_t *pages = map(1 << 25);
    burst();
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, 0, THREADS + 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, of_thread, &barrier);
    pthread_barrier_wait(&barrier);
    large_then_small();
    static char *volatile untouched;
    untouched = malloc(50 << 20);
    untouched[0] = 1;
    size_t live = 0;
    for (size_t i = 0; i < count; i++) live += is_live[i] ? sizes[i] : 0;
    size_t all_pages = pages_of(pages, 0), live_pages = pages_of(pages, 1);
    printf("live %zu\n", live);
    printf("fragmentation %zu\n", live_pages * PAGE - live);
    printf("kept %zu\n", (all_pages - live_pages) * PAGE);
    printf("resident %ld\n", resident());
    wait_for("trim");
    long before = resident();
#ifdef JEMALLOC
    mallctl("arena.4096.purge", 0, 0, 0, 0);
#else
    malloc_trim(0);
#endif
    printf("trimmed %ld\n", before - resident());
    wait_for("end");
    _exit(0);
}
