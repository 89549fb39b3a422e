// Generates functions, calls them, and lists them like a language runtime. The functions have frame pointers and call malloc;
// function N allocates N million bytes, which are never freed. The argument is the kind of list: map, dump or link, or exec
// for a program that executes another one.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOT_BYTES 64
#define FUNCTIONS 5

// push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; call rax; pop rbp; ret
static const unsigned char CODE[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};

typedef void *(*Generated)(void *(*allocate)(size_t), size_t bytes);

static char *memory;

static char *function(int number) {
    return memory + number * SLOT_BYTES;
}

static FILE *create(const char *form) {
    char path[64];
    snprintf(path, sizeof path, form, getpid());
    FILE *file = fopen(path, "w+");
    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

static void list(FILE *map, int number, const char *name) {
    fprintf(map, "%lx %x %s\n", (unsigned long)function(number), SLOT_BYTES, name);
}

static void list_in_map(const char *form) {
    FILE *map = create(form);
    list(map, 1, "JS:~makeBuffers /home/kim/app.js:3:12");
    list(map, 1, "JS:*makeBuffers /home/kim/app.js:3:12");
    list(map, 2, "void [App] Main::Run(string[])");
    list(map, 3, "first");
    list(map, 3, "second");
    // The program does not get further than to this place of the last line.
    fprintf(map, "%lx %x cut", (unsigned long)function(4), SLOT_BYTES);
    fclose(map);
}

static void put(FILE *dump, uint64_t number, size_t bytes) {
    fwrite(&number, bytes, 1, dump);
}

static void load(FILE *dump, int number, const char *name, int line, const char *file) {
    uint64_t start = (uint64_t)function(number);
    put(dump, 2, 4);
    put(dump, 16 + 16 + 16 + strlen(file) + 1, 4);
    put(dump, 0, 8);
    put(dump, start, 8);
    put(dump, 1, 8);
    put(dump, start, 8);
    put(dump, line, 4);
    put(dump, 0, 4);
    fwrite(file, strlen(file) + 1, 1, dump);
    put(dump, 0, 4);
    put(dump, 16 + 40 + strlen(name) + 1 + SLOT_BYTES, 4);
    put(dump, 0, 8);
    put(dump, getpid(), 4);
    put(dump, getpid(), 4);
    put(dump, start, 8);
    put(dump, start, 8);
    put(dump, SLOT_BYTES, 8);
    put(dump, number, 8);
    fwrite(name, strlen(name) + 1, 1, dump);
    fwrite(function(number), SLOT_BYTES, 1, dump);
}

static void list_in_dump(void) {
    FILE *dump = create("elsewhere/jit-%d.dump");
    uint32_t header[10] = {0x4A695444, 1, 40, 62};
    fwrite(header, sizeof header, 1, dump);
    load(dump, 1, "julia_make_7", 12, "/home/kim/make.jl");
    load(dump, 2, "JS:*makeBuffers /home/kim/app.js:3:12", 99, "/home/kim/inlined.js");
    fflush(dump);
    if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0) == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
}

int main(int argc, char **argv) {
    memory = mmap(0, SLOT_BYTES * (FUNCTIONS + 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int number = 1; number <= FUNCTIONS; number++) {
        memcpy(function(number), CODE, sizeof CODE);
    }
    mprotect(memory, SLOT_BYTES * (FUNCTIONS + 1), PROT_READ | PROT_EXEC);
    const char *kind = argv[1];
    if (strcmp(kind, "dump") == 0) {
        list_in_dump();
    } else if (strcmp(kind, "link") == 0) {
        char path[64];
        list_in_map("map-%d");
        snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
        char *target;
        if (asprintf(&target, "%s/map-%d", get_current_dir_name(), getpid()) < 0 || symlink(target, path) != 0) {
            perror(path);
            return 1;
        }
    } else {
        list_in_map("/tmp/perf-%d.map");
    }
    for (int number = 1; number <= FUNCTIONS; number++) {
        ((Generated)function(number))(malloc, number * 1000000ul);
    }
    printf("%d\n", getpid());
    fflush(stdout);
    if (strcmp(kind, "exec") == 0) {
        execl("/bin/true", "true", (char *)0);
    }
    // The command finds the dump while the program runs: it ends when the test has seen that.
    while (strcmp(kind, "dump") == 0 && access(argv[2], F_OK) != 0) {
        usleep(1000);
    }
    abort();
}
