// Maps memory in all the ways that are recorded. The comment on a line is what the line holds at the peak and at the end, in MiB.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define RW (PROT_READ | PROT_WRITE)

static void check(int is_right, const char *what) {
    if (!is_right) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static void unmapped_in_part(void) {
    char *at = mmap(0, 9 * MIB, RW, ANON, -1, 0); // 5 5
    check(munmap(at + 2 * MIB, 3 * MIB) == 0, "middle");
    check(munmap(at + 8 * MIB, MIB) == 0, "end");
}

static void grown_and_shrunk(void) {
    char *at = mmap(0, 4 * MIB, RW, ANON, -1, 0); // 0 0
    at = mremap(at, 4 * MIB, 11 * MIB, MREMAP_MAYMOVE); // 7 7
    at = mremap(at, 11 * MIB, 7 * MIB, 0); // 0 0
    check(at != MAP_FAILED, "mremap");
}

static void committed_from_a_reservation(void) {
    char *at = mmap(0, 4096 * MIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0); // 0 0
    check(mprotect(at + 16 * MIB, 6 * MIB, RW) == 0, "commit"); // 4 4
    check(mprotect(at + 16 * MIB, 2 * MIB, PROT_NONE) == 0, "decommit"); // 0 0
    check(mprotect(at + 18 * MIB, 2 * MIB, PROT_READ) == 0, "read-only memory stays"); // 0 0
    check(mmap(at + 64 * MIB, 3 * MIB, RW, ANON | MAP_FIXED, -1, 0) != MAP_FAILED, "fixed"); // 2 2
    check(mmap(at + 64 * MIB, MIB, RW, ANON | MAP_FIXED, -1, 0) != MAP_FAILED, "again"); // 1 1
}

static void given_back(void) {
    char *at = mmap(0, 8 * MIB, RW, ANON, -1, 0); // 6 6
    memset(at, 1, 8 * MIB);
    check(madvise(at + 4 * MIB, 2 * MIB, MADV_DONTNEED) == 0, "madvise");
}

static void files(const char *self) {
    int file = open(self, O_RDONLY);
    check(mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 0) != MAP_FAILED, "read"); // 0 0
    check(mmap(0, 2 * MIB, RW, MAP_PRIVATE, open("big", O_RDWR), 0) != MAP_FAILED, "private"); // 2 2
    check(mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0) != MAP_FAILED, "shared"); // 0 0
    int memory = memfd_create("memory", 0);
    check(ftruncate(memory, 5 * MIB) == 0, "memfd");
    check(mmap(0, 5 * MIB, RW, MAP_SHARED, memory, 0) != MAP_FAILED, "memfd"); // 5 5
    check(mmap(0, MIB, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED, "shared memory"); // 1 1
}

static void refused(void) {
    char *at = mmap(0, 2 * MIB, RW, ANON, -1, 0); // 2 2
    errno = 0;
    check(mremap(at, 2 * MIB, 1ul << 60, MREMAP_MAYMOVE) == MAP_FAILED && errno, "too large");
    check(munmap(at + 1, MIB) == -1 && errno == EINVAL, "not at a page");
    errno = 123;
    check(mprotect(at, MIB, RW) == 0 && errno == 123, "errno stays");
}

int main(int count, char **arguments) {
    int big = open("big", O_RDWR | O_CREAT, 0600);
    check(count == 1 && ftruncate(big, 4 * MIB) == 0, "the file");
    check(sbrk(3 * MIB) != (void *)-1, "sbrk"); // 2 2
    check(sbrk(-1 * (long)MIB) != (void *)-1, "sbrk"); // 0 0
    volatile char *heap = malloc(100);
    heap[0] = 1;
    unmapped_in_part();
    grown_and_shrunk();
    committed_from_a_reservation();
    given_back();
    files(arguments[0]);
    refused();
    char *last = mmap(0, 64 * MIB, RW, ANON, -1, 0); // 64 0
    check(munmap(last, 64 * MIB) == 0, "last");
    return 0;
}
