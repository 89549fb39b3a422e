/* The heap by other names than `malloc` and `free`: `heap_names WHAT`. Built with SIZED, it is a library that has C23's frees with
   a size; with WRAPPER, one that wraps the C library's heap. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t), *__libc_valloc(size_t), *__libc_pvalloc(size_t), __libc_free(void *);

#ifdef SIZED
/* As the C library does, these call the program's `free`. */
void free_sized(void *block, size_t size) { free(block); }
void free_aligned_sized(void *block, size_t alignment, size_t size) { free(block); }

#elif defined WRAPPER
void *malloc(size_t size) { return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return __libc_realloc(block, size); }
void free(void *block) { __libc_free(block); }

#else
extern void free_sized(void *, size_t) __attribute__((weak));
extern void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));
extern int cuMemAlloc_v2(void) __attribute__((weak));
extern int cuMemFree_v2(void) __attribute__((weak));

enum { MILLION = 1000000, TIMES = 100000 };
static void *kept[9];

/* Prints which names there are, and where a look-up has failed, that it left a message about the name, once. */
static void look(const char *how, void *handle, const char *name) {
    void *found = dlsym(handle, name);
    char *error = dlerror();
    int is_about_it = error && strstr(error, "undefined symbol") && strstr(error, name);
    printf("%s %s: %d %d %d\n", how, name, found != 0, is_about_it, dlerror() != 0);
}

int main(int count, char **words) {
    if (count != 2) return 2;
    if (!strcmp(words[1], "names")) {
        const char *names[] = {"free_sized", "free_aligned_sized", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cuNothing", "cos", "free"};
        printf("%d %d %d %d %d\n", dlerror() != 0, free_sized != 0, free_aligned_sized != 0, cuMemAlloc_v2 != 0, cuMemFree_v2 != 0);
        void *program = dlopen(0, RTLD_LAZY);
        for (int i = 0; i < 8; i++) {
            look("default", RTLD_DEFAULT, names[i]);
            look("next", RTLD_NEXT, names[i]);
            look("program", program, names[i]);
        }
    } else if (!strcmp(words[1], "libc")) {
        kept[0] = __libc_malloc(MILLION);
        kept[1] = __libc_calloc(1000, 2000);
        kept[2] = __libc_realloc(__libc_malloc(MILLION / 2), 3 * MILLION);
        kept[3] = __libc_memalign(4096, 4 * MILLION);
        kept[4] = __libc_valloc(5 * MILLION);
        kept[5] = __libc_pvalloc(6 * MILLION);
        kept[6] = __libc_realloc(malloc(MILLION / 2), 7 * MILLION);
        kept[7] = realloc(__libc_malloc(MILLION / 2), 8 * MILLION);
        __libc_free(malloc(11 * MILLION));
        free(__libc_malloc(12 * MILLION));
        __libc_free(0);
        for (int i = 0; i < TIMES; i++) __libc_free(__libc_malloc(i % 500));
    } else if (!strcmp(words[1], "sized")) {
        if (!free_sized || !free_aligned_sized) return 3;
        kept[0] = malloc(MILLION);
        free_sized(malloc(11 * MILLION), 11 * MILLION);
        free_aligned_sized(aligned_alloc(64, 6400 * 1000), 64, 6400 * 1000);
        free_sized(0, 0);
        for (int i = 0; i < TIMES; i++) free_sized(malloc(i % 500), i % 500);
    } else if (!strcmp(words[1], "wrapper")) {
        kept[0] = malloc(MILLION);
        kept[1] = realloc(malloc(MILLION / 2), 2 * MILLION);
        for (int i = 0; i < TIMES; i++) free(malloc(i % 500));
    }
    puts("well");
    return 0;
}
#endif
